//! Where the key of an operation is kept, from before its first attempt: here a file for each order.
//!
//! A real client has a table of orders. There the key is a column of the order's row, written in the transaction that
//! makes the order, and `first_attempt` another one.

use super::{AnyError, clock};
use idem_core::client::OperationKey;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The key of an order, and since when it may have been sent.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) key: OperationKey,
    first_attempt: SystemTime,
}

impl Kept {
    /// The key that the order has, or else a new one, which is on the disk when this returns.
    pub(crate) fn of(folder: &Path, order: &str) -> Result<Self, AnyError> {
        fs::create_dir_all(folder)?;
        let file = folder.join(order);
        if !file.exists() {
            let draft = folder.join(format!("{order}.{}", std::process::id()));
            Self { key: OperationKey::mint(), first_attempt: clock::wall() }.write(&draft)?;
            // Linked under its name when it is whole, and only if no other process was faster: then its key is the one.
            let linked = fs::hard_link(&draft, &file);
            fs::remove_file(&draft)?;
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
                Ok(()) | Err(_) => File::open(folder)?.sync_all()?,
            }
        }
        Self::read(&file)
    }

    /// How long ago the first attempt may have been made.
    pub(crate) fn age(&self) -> Duration {
        // A clock that was set back makes it look younger than it is; nothing here can know.
        clock::wall().duration_since(self.first_attempt).unwrap_or(Duration::ZERO)
    }

    fn write(&self, file: &Path) -> Result<(), AnyError> {
        let since = self.first_attempt.duration_since(UNIX_EPOCH)?.as_secs();
        let mut file = File::create(file)?;
        writeln!(file, "{since} {}", self.key.as_str())?;
        Ok(file.sync_all()?)
    }

    fn read(file: &Path) -> Result<Self, AnyError> {
        let text = fs::read_to_string(file)?;
        let (since, key) = text.trim_end().split_once(' ').ok_or("the file of the key has another form")?;
        let first_attempt = UNIX_EPOCH + Duration::from_secs(since.parse()?);
        Ok(Self { key: OperationKey::from_kept(key)?, first_attempt })
    }
}

/// An order's number that can be a file's name too.
pub(crate) fn order(text: &str) -> Result<String, &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=100).contains(&text.len()) && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("an order has 1 to 100 letters, digits, - and _")
    }
}
