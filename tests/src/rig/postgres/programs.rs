//! Finding the programs of a PostgreSQL version on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Version;
use crate::rig::{Error, process};

/// The folder with `initdb` and `postgres` of one version.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) folder: PathBuf,
    pub(super) major: u32,
}

impl Programs {
    pub(super) fn find(version: Version) -> Result<Self, Error> {
        // A folder that was named is used or is an error; what was only come across may be unfit.
        for variable in named(version) {
            let Some(folder) = std::env::var_os(&variable).map(PathBuf::from) else { continue };
            let programs = Self::in_folder(&folder).ok_or_else(|| Error::Missing {
                what: format!("the programs initdb and postgres in {} (from {variable})", folder.display()),
                help: format!("correct {variable}, or unset it"),
            })?;
            if programs.fits(version) {
                return Ok(programs);
            }
        }
        let found = || installed().into_iter().chain(on_path()).chain(unpacked());
        found().filter_map(|folder| Self::in_folder(&folder)).find(|programs| programs.fits(version)).ok_or_else(|| {
            let seen: Vec<String> = found().map(|folder| folder.display().to_string()).collect();
            missing(version, &seen)
        })
    }

    /// The programs in `folder`, if they are there and say their version.
    fn in_folder(folder: &Path) -> Option<Self> {
        if !folder.join("initdb").is_file() {
            return None;
        }
        let said = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let major = major(&String::from_utf8_lossy(&said.stdout))?;
        Some(Self { folder: folder.to_owned(), major })
    }

    fn fits(&self, version: Version) -> bool {
        version == Version::Any || version == Version::Major(self.major)
    }
}

/// The environment variables that may name the folder, the most telling first.
fn named(version: Version) -> Vec<String> {
    let any = "IDEM_TEST_POSTGRES_BIN".to_owned();
    match version {
        Version::Any => vec![any],
        Version::Major(major) => vec![format!("{any}_{major}"), any],
    }
}

/// Debian and its relatives keep one folder per major version.
fn installed() -> Vec<PathBuf> {
    versions_in(Path::new("/usr/lib/postgresql"))
}

fn on_path() -> Vec<PathBuf> {
    let from_pg_config = process::on_path("pg_config").and_then(|program| {
        let said = Command::new(program).arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(said.stdout).ok()?.trim()))
    });
    let from_path = process::on_path("initdb").and_then(|program| program.parent().map(Path::to_owned));
    from_pg_config.into_iter().chain(from_path).collect()
}

/// Where `scripts/postgres` unpacks.
fn unpacked() -> Vec<PathBuf> {
    versions_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/postgres"))
}

/// `parent/15/bin`, `parent/18.6.0/bin` and so on, the newest first.
fn versions_in(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|one, other| other.cmp(one));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// The 15 of `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, or of `... 15beta2`.
fn major(said: &str) -> Option<u32> {
    let number = said.split_once("(PostgreSQL) ")?.1;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

fn missing(version: Version, seen: &[String]) -> Error {
    let (which, script) = match version {
        Version::Any => ("PostgreSQL".to_owned(), "scripts/postgres 18.6.0".to_owned()),
        Version::Major(major) => (format!("PostgreSQL {major}"), format!("scripts/postgres {major}")),
    };
    let seen = if seen.is_empty() { "nothing".to_owned() } else { seen.join(", ") };
    Error::Missing {
        what: format!("the programs of {which} (initdb, postgres); found on this machine: {seen}"),
        help: format!(
            "any one of these helps:\n\
             * install the server: on Debian `apt-get install postgresql`, on Fedora `dnf install postgresql-server`, with Homebrew \
             `brew install postgresql`\n\
             * unpack it into target/: `{script}`\n\
             * name its folder: IDEM_TEST_POSTGRES_BIN=/folder/of/initdb\n\
             * name a running server: IDEM_TEST_POSTGRES_URL=postgres://postgres@127.0.0.1:5432/postgres\n\
             * where Docker runs: `cargo test --features idem-tests/containers` (not for the tests that stop their server)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_the_program_says() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18.6\n"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major("mysqld 8"), None);
    }

    #[test]
    fn what_is_missing_is_named_with_what_helps() {
        let said = missing(Version::Major(17), &["/usr/lib/postgresql/15/bin".to_owned()]).to_string();
        for part in ["PostgreSQL 17", "/usr/lib/postgresql/15/bin", "apt-get install", "scripts/postgres 17"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}
