//! JSON documents, and their many spellings.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value};

/// A document in which each number is exactly what its shortest text says, so that exact numbers and doubles agree.
pub(crate) fn document(rng: &mut StdRng) -> Value {
    value(rng, 4)
}

fn value(rng: &mut StdRng, depth: usize) -> Value {
    match rng.random_range(0..if depth == 0 { 5 } else { 9 }) {
        0 => Value::Null,
        1 => Value::from(rng.random::<bool>()),
        2 | 3 => number(rng),
        4 => Value::from(text(rng)),
        5 | 6 => (0..rng.random_range(0..5)).map(|_| value(rng, depth - 1)).collect(),
        _ => Value::Object(
            (0..rng.random_range(0..6)).map(|_| (text(rng), value(rng, depth - 1))).collect::<Map<_, _>>(),
        ),
    }
}

fn number(rng: &mut StdRng) -> Value {
    match rng.random_range(0..4) {
        0 => Value::from(rng.random_range(-20..20)),
        1 => Value::from(rng.random_range(-(1_i64 << 53)..=1 << 53)),
        2 => {
            let exact = f64::from(rng.random_range(-999_999..=999_999)) / f64::from(1 << rng.random_range(0..20));
            if shortest_is_exact(exact) { Value::from(exact) } else { number(rng) }
        }
        // Powers of two and ten, of which the greater have an exponent.
        _ => {
            let base = if rng.random() { 2_f64 } else { 10_f64 };
            let exact = base.powi(rng.random_range(-20..=22));
            if shortest_is_exact(exact) { Value::from(exact) } else { number(rng) }
        }
    }
}

fn shortest_is_exact(number: f64) -> bool {
    let exact = format!("{number:.60}");
    let trim = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    let shortest = number.to_string();
    trim(&exact) == if shortest.contains('.') { trim(&shortest) } else { shortest }
}

fn text(rng: &mut StdRng) -> String {
    // Where UTF-16 and UTF-8 disagree about order, what must be escaped, and names that are often the same.
    const FEW: &[char] = &['a', 'b', 'c'];
    const MANY: &[char] = &[
        'a',
        '\0',
        '\u{8}',
        '\t',
        '\n',
        '\u{1f}',
        ' ',
        '"',
        '/',
        '\\',
        '~',
        '\u{7f}',
        '\u{80}',
        '\u{e4}',
        '\u{308}',
        '\u{2028}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{fffd}',
        '\u{ffff}',
        '\u{10000}',
        '\u{1f600}',
        '\u{10ffff}',
    ];
    let alphabet = if rng.random() { FEW } else { MANY };
    (0..rng.random_range(0..4)).map(|_| alphabet[rng.random_range(0..alphabet.len())]).collect()
}

/// The document as text, with a choice of member order, white space, escapes and spelling of numbers.
pub(crate) fn spelling(document: &Value, rng: &mut StdRng) -> String {
    let mut text = String::new();
    write(document, rng, &mut text);
    text
}

fn write(value: &Value, rng: &mut StdRng, text: &mut String) {
    write_space(rng, text);
    match value {
        Value::String(string) => write_string(string, rng, text),
        Value::Number(number) => write_number(&number.to_string(), rng, text),
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                write(element, rng, text);
            }
            write_space(rng, text);
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_cached_key(|_| rng.random::<u32>());
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                write_space(rng, text);
                write_string(name, rng, text);
                write_space(rng, text);
                text.push(':');
                write(member, rng, text);
            }
            write_space(rng, text);
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
    write_space(rng, text);
}

fn write_space(rng: &mut StdRng, text: &mut String) {
    text.push_str(["", "", "", " ", "\n\t", "\r\n"][rng.random_range(0..6)]);
}

fn write_string(string: &str, rng: &mut StdRng, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        let short = ['"', '\\', '/', '\u{8}', '\u{c}', '\n', '\r', '\t'].iter().position(|known| *known == character);
        match short {
            Some(index) if rng.random() => text.extend(['\\', char::from(b"\"\\/bfnrt"[index])]),
            _ if character < ' ' || character == '"' || character == '\\' || rng.random_ratio(1, 3) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    text.push_str(&if rng.random() { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
                }
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

fn write_number(number: &str, rng: &mut StdRng, text: &mut String) {
    let more = match (number.contains('.'), number.contains('e')) {
        (_, true) => [""; 4],
        (true, false) => ["", "0", "e0", "00E-00"],
        (false, false) => ["", ".0", "e+0", "0e-1"],
    };
    let more = more[rng.random_range(0..4)];
    // `00` is no number.
    text.push_str(number);
    text.push_str(if number.trim_start_matches('-') == "0" && more == "0e-1" { "" } else { more });
}

/// The document with one value changed to another.
pub(crate) fn changed(document: &Value, rng: &mut StdRng) -> Value {
    let mut changed = document.clone();
    change(&mut changed, rng);
    changed
}

fn change(value: &mut Value, rng: &mut StdRng) {
    match value {
        Value::Array(elements) if !elements.is_empty() => {
            let index = rng.random_range(0..elements.len());
            match rng.random_range(0..6) {
                0 => drop(elements.remove(index)),
                1 => elements.push(number(rng)),
                _ => change(&mut elements[index], rng),
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let index = rng.random_range(0..members.len());
            let Some(name) = members.keys().nth(index).cloned() else { return };
            match rng.random_range(0..6) {
                0 => drop(members.remove(&name)),
                1 => {
                    let Some(member) = members.remove(&name) else { return };
                    members.insert(name + "\u{1f600}", member);
                }
                _ => change(&mut members[&name], rng),
            }
        }
        Value::Null => *value = Value::from("null"),
        Value::Bool(boolean) => *boolean = !*boolean,
        Value::Number(old) => {
            let old = old.as_f64();
            *value = loop {
                let new = number(rng);
                if new.as_f64() != old {
                    break new;
                }
            };
        }
        Value::String(string) => match string.pop() {
            Some('x') | None => string.push('y'),
            Some(_) => string.push('x'),
        },
        Value::Array(_) => *value = Value::Object(Map::new()),
        Value::Object(_) => *value = Value::Array(Vec::new()),
    }
}
