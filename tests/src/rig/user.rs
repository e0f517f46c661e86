//! Who owns the servers: nobody special. PostgreSQL and PgBouncer refuse to run as root.

use std::fs;

use super::Error;

/// A user without privileges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The user to become if this process is root, or `None` if it may stay who it is.
pub(super) fn unprivileged() -> Result<Option<User>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let names = match std::env::var("IDEM_TEST_USER") {
        Ok(name) => vec![name],
        Err(_) => vec!["postgres".to_owned(), "nobody".to_owned()],
    };
    let table = fs::read_to_string("/etc/passwd").map_err(Error::io("reading /etc/passwd"))?;
    names.iter().find_map(|name| find(&table, name)).map(Some).ok_or_else(|| Error::Missing {
        what: format!("an unprivileged user to own the servers (looked in /etc/passwd for: {})", names.join(", ")),
        help: "add one (useradd --system NAME) and set IDEM_TEST_USER=NAME, or do not run as root".to_owned(),
    })
}

fn find(table: &str, name: &str) -> Option<User> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (found == name && uid != 0).then(|| User { name: name.to_owned(), uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_taken_for_unprivileged() {
        let table = "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nnobody:x:65534:65533::/:\nbroken\n";
        assert_eq!(find(table, "nobody"), Some(User { name: "nobody".into(), uid: 65534, gid: 65533 }));
        assert_eq!(find(table, "toor"), None);
        assert_eq!(find(table, "broken"), None);
    }
}
