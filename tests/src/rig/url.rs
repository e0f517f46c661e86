//! The little surgery that connection URLs need: another database, another address.

/// The parts of `scheme://user@host:port/path?query` that the rig replaces.
struct Parts<'a> {
    before: &'a str,
    address: &'a str,
    path: &'a str,
    after: &'a str,
}

fn parts(url: &str) -> Parts<'_> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let query = url[start..].find(['?', '#']).map_or(url.len(), |at| start + at);
    let path = url[start..query].find('/').map_or(query, |at| start + at);
    let address = url[start..path].rfind('@').map_or(start, |at| start + at + 1);
    Parts { before: &url[..address], address: &url[address..path], path: &url[path..query], after: &url[query..] }
}

/// The same URL with another database (or, for Redis, another number) as its path.
#[must_use]
pub fn with_database(url: &str, database: &str) -> String {
    let Parts { before, address, after, .. } = parts(url);
    format!("{before}{address}/{database}{after}")
}

/// The same URL with another `host:port`: how a client is sent through a proxy or a pooler.
#[must_use]
pub fn with_address(url: &str, address: &str) -> String {
    let Parts { before, path, after, .. } = parts(url);
    format!("{before}{address}{path}{after}")
}

/// The `host:port` of a URL, with `default_port` if it names none.
#[must_use]
pub fn address(url: &str, default_port: u16) -> String {
    let address = parts(url).address;
    let host_end = address.rfind(']').map_or(0, |at| at + 1);
    if address[host_end..].contains(':') { address.to_owned() } else { format!("{address}:{default_port}") }
}

/// The user and the password of a URL, percent-encoding undone; empty if it names none.
#[must_use]
pub fn credentials(url: &str) -> (String, String) {
    let before = parts(url).before;
    let start = before.find("://").map_or(0, |at| at + 3);
    let both = before[start..].trim_end_matches('@');
    let (user, password) = both.split_once(':').unwrap_or((both, ""));
    (decoded(user), decoded(password))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &others[2..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_is_replaced_and_the_others_stay() {
        let full = "postgres://user:p%40ss@db.example:6543/one?sslmode=disable";
        assert_eq!(with_database(full, "two"), "postgres://user:p%40ss@db.example:6543/two?sslmode=disable");
        assert_eq!(with_address(full, "127.0.0.1:1"), "postgres://user:p%40ss@127.0.0.1:1/one?sslmode=disable");
        assert_eq!(address(full, 5432), "db.example:6543");

        assert_eq!(with_database("postgres://h", "two"), "postgres://h/two");
        assert_eq!(with_database("postgres://h?a=b/c", "two"), "postgres://h/two?a=b/c");
        assert_eq!(with_address("redis://:secret@h/3", "[::1]:9"), "redis://:secret@[::1]:9/3");
        assert_eq!(address("redis://h/3", 6379), "h:6379");
        assert_eq!(address("redis://[::1]/3", 6379), "[::1]:6379");
        assert_eq!(address("redis://[::1]:7/3", 6379), "[::1]:7");
    }

    #[test]
    fn credentials_are_decoded() {
        assert_eq!(credentials("postgres://user:p%40ss%3A@h/d"), ("user".into(), "p@ss:".into()));
        assert_eq!(credentials("postgres://user@h/d"), ("user".into(), String::new()));
        assert_eq!(credentials("postgres://h/d@e"), (String::new(), String::new()));
        assert_eq!(credentials("postgres://50%:é@h"), ("50%".into(), "é".into()));
    }
}
