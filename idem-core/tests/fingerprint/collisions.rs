//! Requests that nearly run together.

use idem_core::fingerprint::{BodyHasher, Fingerprint, FingerprintBuilder};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{fingerprint, generator};

const PAIRS: usize = 1_000_000;

type Text = Vec<u8>;
type Pairs = Vec<(Text, Text)>;

/// What a request is, in a form in which equality is equality of requests.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    operation: Text,
    path: Pairs,
    query: Pairs,
    headers: Pairs,
    body: Body,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    None,
    /// An array of strings and arrays of them.
    Json(Vec<Vec<Text>>),
    JsonNotCanonical(Text),
    Form(Pairs),
    Multipart(Vec<FilePart>),
    /// A boundary and bytes.
    MultipartNotCanonical(Text, Text),
    Bytes(Text),
}

#[derive(Clone, Debug, PartialEq)]
struct FilePart {
    name: Text,
    file_name: Option<Text>,
    media_type: Option<Text>,
    content: Text,
}

/// Few letters and short texts, so that two requests are often the same but for where a part ends.
fn text(rng: &mut StdRng) -> Text {
    (0..rng.random_range(0..3)).map(|_| rng.random_range(b'a'..=b'b')).collect()
}

fn list<T>(rng: &mut StdRng, mut item: impl FnMut(&mut StdRng) -> T) -> Vec<T> {
    (0..rng.random_range(0..3)).map(|_| item(rng)).collect()
}

fn pairs(rng: &mut StdRng) -> Pairs {
    list(rng, |rng| (text(rng), text(rng)))
}

/// By name, and otherwise as it was.
fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    pairs
}

fn body(rng: &mut StdRng) -> Body {
    match rng.random_range(0..7) {
        0 => Body::None,
        1 => Body::Json(list(rng, |rng| list(rng, text))),
        // An opening bracket has no canonical form, whatever comes.
        2 => Body::JsonNotCanonical([b"[", &*text(rng)].concat()),
        3 => Body::Form(pairs(rng)),
        4 => Body::Multipart(list(rng, |rng| FilePart {
            name: text(rng),
            file_name: rng.random::<bool>().then(|| text(rng)),
            media_type: rng.random::<bool>().then(|| text(rng)),
            content: text(rng),
        })),
        5 => Body::MultipartNotCanonical(text(rng), text(rng)),
        _ => Body::Bytes(list(rng, text).concat()),
    }
}

fn model(rng: &mut StdRng) -> Model {
    Model {
        operation: text(rng),
        path: sorted(pairs(rng)),
        query: pairs(rng),
        headers: sorted(pairs(rng)),
        body: body(rng),
    }
}

/// Another request, in most cases one that differs in one place.
fn neighbour(model: &Model, rng: &mut StdRng) -> Model {
    let mut other = model.clone();
    match rng.random_range(0..9) {
        0 => return self::model(rng),
        1 => other.operation = text(rng),
        2 => other.path = sorted(pairs(rng)),
        3 => other.query = pairs(rng),
        4 => other.headers = sorted(pairs(rng)),
        5 => other.body = body(rng),
        6 => (other.path, other.query) = (sorted(other.query), other.path),
        // The same letters, cut elsewhere.
        7 => other.query = recut(&model.query, rng),
        _ => match &model.body {
            Body::Form(pairs) => other.body = Body::Form(recut(pairs, rng)),
            Body::Bytes(bytes) => other.body = Body::JsonNotCanonical([b"[", &**bytes].concat()),
            Body::Json(_) => other.body = Body::Bytes(realized(&model.body, rng).0),
            Body::Multipart(parts) => {
                let mut parts = parts.clone();
                if let Some(part) = parts.first_mut() {
                    part.file_name = Some(std::mem::take(&mut part.name));
                }
                other.body = Body::Multipart(parts);
            }
            _ => {}
        },
    }
    other
}

fn recut(pairs: &Pairs, rng: &mut StdRng) -> Pairs {
    let letters: Text = pairs.iter().flat_map(|(name, value)| [&**name, value].concat()).collect();
    let mut places: Vec<usize> = (0..3).map(|_| rng.random_range(0..=letters.len())).collect();
    places.sort_unstable();
    let [one, two, three] = [places[0], places[1], places[2]];
    vec![
        (letters[..one].to_vec(), letters[one..two].to_vec()),
        (letters[two..three].to_vec(), letters[three..].to_vec()),
    ]
}

/// A body as it may be sent, and the boundary if it has one.
fn realized(body: &Body, rng: &mut StdRng) -> (Text, Text) {
    let escaped = |bytes: &[u8], rng: &mut StdRng| -> String {
        let one = |byte: &u8| if rng.random() { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
        bytes.iter().map(one).collect()
    };
    match body {
        Body::None => (Text::new(), Text::new()),
        Body::Json(lists) => {
            let strings: Vec<Vec<_>> = lists
                .iter()
                .map(|list| list.iter().map(|text| String::from_utf8(text.clone()).unwrap()).collect())
                .collect();
            let space = if rng.random() { " " } else { "" };
            (format!("{space}{strings:?}{space}").into_bytes(), Text::new())
        }
        Body::JsonNotCanonical(bytes) | Body::Bytes(bytes) => (bytes.clone(), Text::new()),
        Body::Form(pairs) => {
            let pieces: Vec<_> =
                pairs.iter().map(|(name, value)| format!("{}={}", escaped(name, rng), escaped(value, rng))).collect();
            let between = if rng.random() { "&" } else { "&&" };
            (pieces.join(between).into_bytes(), Text::new())
        }
        Body::Multipart(parts) => {
            let boundary = format!("-{:x}", rng.random::<u16>());
            let mut body = String::new();
            let string = |text: &Text| String::from_utf8(text.clone()).unwrap();
            for part in parts {
                body += &format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", string(&part.name));
                body +=
                    &part.file_name.as_ref().map_or(String::new(), |name| format!("; filename=\"{}\"", string(name)));
                body += "\r\n";
                body += &part
                    .media_type
                    .as_ref()
                    .map_or(String::new(), |kind| format!("Content-Type: {}\r\n", string(kind)));
                body += &format!("\r\n{}\r\n", string(&part.content));
            }
            body += &format!("--{boundary}--");
            body += if rng.random() { "\r\n" } else { "" };
            (body.into_bytes(), boundary.into_bytes())
        }
        Body::MultipartNotCanonical(boundary, bytes) => (bytes.clone(), boundary.clone()),
    }
}

fn of(model: &Model, rng: &mut StdRng) -> Fingerprint {
    let string = |text: &Text| String::from_utf8(text.clone()).unwrap();
    let (body, boundary) = realized(&model.body, rng);
    let mut builder: FingerprintBuilder<'_> = Fingerprint::builder(string(&model.operation));
    for (name, value) in &model.path {
        builder = builder.path_parameter(string(name), string(value));
    }
    for (name, value) in &model.query {
        builder = builder.query(string(name), string(value));
    }
    for (name, value) in &model.headers {
        builder = builder.header(string(name), value);
    }
    let streamed = |mut hasher: BodyHasher, rng: &mut StdRng| {
        let (one, two) = body.split_at(rng.random_range(0..=body.len()));
        hasher.update(one);
        hasher.update(two);
        hasher.finish()
    };
    fingerprint(match &model.body {
        Body::None => builder,
        Body::Json(_) | Body::JsonNotCanonical(_) => builder.json(&body),
        Body::Form(_) => builder.form(&body),
        Body::Multipart(_) | Body::MultipartNotCanonical(..) => {
            builder.body(streamed(BodyHasher::multipart(&boundary), rng))
        }
        Body::Bytes(_) => builder.body(streamed(BodyHasher::bytes(), rng)),
    })
}

#[test]
fn requests_are_equal_exactly_when_their_fingerprints_are() {
    let mut rng = generator();
    let (mut equal, mut different) = (0_usize, 0_usize);
    for _ in 0..PAIRS {
        let one = model(&mut rng);
        let two = neighbour(&one, &mut rng);
        let fingerprints = (of(&one, &mut rng), of(&two, &mut rng));
        assert_eq!(fingerprints.0 == fingerprints.1, one == two, "{one:?} and {two:?}");
        *if one == two { &mut equal } else { &mut different } += 1;
    }
    // Both directions were tried, and often.
    assert!(equal > PAIRS / 50 && different > PAIRS / 2, "{equal} equal pairs, {different} different ones");
}
