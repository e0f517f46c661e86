//! What makes a request the one that it is: [`standard`].

use bytes::Bytes;
use http::header;
use http::request::Parts;
use idem_core::Fingerprint;
use idem_core::fingerprint::{BodyHasher, FingerprintBuilder};
use mime::Mime;

/// The standard fingerprint: method, raw path, all query pairs, decoded and in order, media type and body.
///
/// The body counts by its media type: JSON by its canonical form (`application/json` and all `+json`), a form by its
/// decoded pairs, `multipart/form-data` by its parts, everything else by its bytes. Of the `Content-Type` only the
/// media type counts: a boundary is drawn anew for each try, and JSON is UTF-8 whatever a parameter says.
///
/// Behind a router that strips a prefix from the path, two routes may look alike: put the layer around the router, or
/// add what tells them apart.
///
/// # Examples
///
/// Leave out what a retry may change, and add a header that changes what the request means:
///
/// ```
/// use idem_core::fingerprint::JsonPointer;
/// use idem_tower::fingerprint::standard;
///
/// let sent_at = JsonPointer::new("/sent_at")?;
/// # fn head() -> http::request::Parts { http::Request::new(()).into_parts().0 }
/// # let (head, body) = (head(), bytes::Bytes::new());
/// let version = head.headers.get("api-version").map_or(&b""[..], |value| value.as_bytes());
/// let candidates = standard(&head, &body).without(&sent_at).header("api-version", version).finish()?;
/// # let _ = candidates;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn standard<'a>(head: &Parts, body: &'a Bytes) -> FingerprintBuilder<'a> {
    let mut builder = Fingerprint::builder(format!("{} {}", head.method, head.uri.path()));
    if let Some(query) = head.uri.query() {
        builder = builder.query_string(query);
    }
    let Some(content_type) = head.headers.get(header::CONTENT_TYPE) else { return builder.bytes(body) };
    let Some(media_type) = content_type.to_str().ok().and_then(|value| value.parse::<Mime>().ok()) else {
        return builder.header("content-type", content_type.as_bytes()).bytes(body);
    };
    builder = builder.header("content-type", media_type.essence_str());
    // The layer has a limit of its own, and the body is here already.
    builder = builder.body_limit(body.len());
    match (media_type.type_(), media_type.subtype(), media_type.suffix()) {
        (mime::APPLICATION, mime::JSON, _) | (_, _, Some(mime::JSON)) => builder.json(body),
        (mime::APPLICATION, mime::WWW_FORM_URLENCODED, _) => builder.form(body),
        (mime::MULTIPART, mime::FORM_DATA, _) => match media_type.get_param(mime::BOUNDARY) {
            Some(boundary) => {
                let mut hasher = BodyHasher::multipart(boundary.as_str());
                hasher.update(body);
                builder.body(hasher.finish())
            }
            None => builder.bytes(body),
        },
        _ => builder.bytes(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn fingerprint(content_type: &str, body: &str) -> Fingerprint {
        let request = Request::post("/a?b=%20c").header("content-type", content_type).body(()).unwrap();
        let body = Bytes::from(body.to_owned());
        standard(&request.into_parts().0, &body).finish().unwrap().current().clone()
    }

    fn multipart(boundary: &str) -> Fingerprint {
        let body = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n");
        fingerprint(&format!("multipart/form-data; boundary={boundary}"), &body)
    }

    /// What a client library may write in other words in another attempt.
    #[test]
    fn a_body_counts_by_its_media_type() {
        let form = "application/x-www-form-urlencoded";
        let same = [
            (
                fingerprint("application/json", "{\"a\":1}"),
                fingerprint("Application/JSON; charset=utf-8", " {\"a\":1.0}"),
            ),
            (fingerprint("application/x+json", "[1]"), fingerprint("application/x+json", "[1e0]")),
            (fingerprint(form, "a=b+c"), fingerprint(form, "a=b%20c")),
            (multipart("one"), multipart("two")),
        ];
        for (one, other) in same {
            assert_eq!(one, other);
        }
        let different = [
            (fingerprint("application/json", "1"), fingerprint("text/plain", "1")),
            (fingerprint("text/plain", "a=b+c"), fingerprint("text/plain", "a=b%20c")),
            (fingerprint(form, "a=b"), fingerprint(form, "b=a")),
            (fingerprint("not a type", "1"), fingerprint("not a type either", "1")),
        ];
        for (one, other) in different {
            assert_ne!(one, other);
        }
    }
}
