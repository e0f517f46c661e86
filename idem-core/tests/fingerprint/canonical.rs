//! The canonical form of JSON.

use idem_core::fingerprint::json::{Limits, canonicalize};

use crate::documents::{changed, document, spelling};
use crate::{fingerprint, generator, request};

const DOCUMENTS: usize = 100_000;

/// Where numbers are what their shortest text says, the canonical form is that of another implementation of RFC 8785.
#[test]
fn agrees_with_another_implementation() {
    let mut rng = generator();
    for _ in 0..DOCUMENTS {
        let document = document(&mut rng);
        let text = spelling(&document, &mut rng);
        let canonical = canonicalize(text.as_bytes(), Limits::default()).map(|bytes| String::from_utf8(bytes).unwrap());
        let expected = serde_json_canonicalizer::to_string(&document).unwrap();
        assert_eq!(canonical.as_deref(), Ok(&*expected), "{text}");
        assert_eq!(canonicalize(expected.as_bytes(), Limits::default()).as_deref(), Ok(expected.as_bytes()));
    }
}

#[test]
fn spelling_does_not_matter_and_values_do() {
    let mut rng = generator();
    for _ in 0..DOCUMENTS / 2 {
        let document = document(&mut rng);
        let other = changed(&document, &mut rng);
        let texts = [&document, &document, &other].map(|document| spelling(document, &mut rng));
        let [one, two, other] = texts.each_ref().map(|text| fingerprint(request().json(text.as_bytes())));
        assert_eq!(one, two, "{texts:?}");
        assert_ne!(one, other, "{texts:?}");
    }
}
