//! Which server a test wants, and the order in which the sources are asked.

use super::programs::Programs;
use super::{Cluster, Postgres};
use crate::rig::{Error, must};

/// Which PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// Whatever the machine offers first.
    #[default]
    Any,
    /// This major version, 18 for example.
    Major(u32),
}

/// How to start a server. Made by [`Postgres::options`].
#[derive(Clone, Debug)]
pub struct Options {
    version: Version,
    own: bool,
    settings: Vec<(String, String)>,
    room: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { version: Version::Any, own: false, settings: Vec::new(), room: 64 }
    }
}

impl Options {
    /// Defaults to [`Version::Any`].
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Start one from programs, whatever `IDEM_TEST_POSTGRES_URL` says: for tests that stop, pause or kill it. Defaults
    /// to no.
    #[must_use]
    pub fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// A line of `postgresql.conf`. Implies [`own`](Self::own). Defaults to what `initdb` writes, with 200 connections;
    /// `fsync` is on.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self.own()
    }

    /// How many databases that tests are done with may lie around in an own server before they are dropped together.
    /// Defaults to 64, which are half a gigabyte.
    #[must_use]
    pub fn dropped_databases(mut self, room: usize) -> Self {
        self.room = room;
        self
    }

    /// Starts the server.
    ///
    /// # Panics
    ///
    /// Where [`try_start`](Self::try_start) gives an error.
    pub async fn start(self) -> Postgres {
        must(self.try_start().await)
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if no source has one of this version; [`Error::Program`] with the end of the log if it does
    /// not start.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops and removes what it had started.
    pub async fn try_start(self) -> Result<Postgres, Error> {
        if let (false, Ok(url)) = (self.own, std::env::var("IDEM_TEST_POSTGRES_URL")) {
            let given = Postgres::given(url).await?;
            if self.version == Version::Any || self.version == Version::Major(given.major()) {
                return Ok(given);
            }
        }
        let programs = match Programs::find(self.version) {
            Ok(programs) => programs,
            #[cfg(feature = "containers")]
            Err(missing) if !self.own => return super::container::instead(self.version, missing).await,
            Err(missing) => return Err(missing),
        };
        Postgres::own(Cluster::start(programs, &self.settings).await?, self.room).await
    }
}
