//! Which server a test wants, and the order in which the sources are asked.

use std::io::Write as _;

use super::programs::Programs;
use super::{Cluster, Contents, Postgres};
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
    small_disk: Option<(Contents, u64)>,
    room: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { version: Version::Any, own: false, settings: Vec::new(), small_disk: None, room: 64 }
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

    /// Puts a part of what the server stores on a disk of its own of this many bytes, in memory, for
    /// [`fill_disk`](Postgres::fill_disk). Implies [`own`](Self::own). Defaults to none.
    ///
    /// It takes Linux, root, and leave to mount; without them starting the server gives [`Error::Forbidden`].
    #[must_use]
    pub fn small_disk(mut self, contents: Contents, bytes: u64) -> Self {
        self.small_disk = Some((contents, bytes));
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

    /// Starts the server, if this process may make its [small disk](Self::small_disk). Otherwise says on standard error
    /// that the test of this thread did not run, and why: past the harness, which shows nothing of a test that passes.
    ///
    /// # Panics
    ///
    /// Where [`try_start`](Self::try_start) gives another error than [`Error::Forbidden`].
    pub async fn start_if_allowed(self) -> Option<Postgres> {
        match self.try_start().await {
            Err(forbidden @ Error::Forbidden { .. }) => {
                let thread = std::thread::current();
                let test = thread.name().unwrap_or("a test");
                // There is nobody else to tell.
                let _closed = writeln!(std::io::stderr(), "NOT RUN: {test}: {forbidden}");
                None
            }
            other => Some(must(other)),
        }
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if no source has one of this version; [`Error::Program`] with the end of the log if it does
    /// not start; [`Error::Forbidden`] if it was to have a [small disk](Self::small_disk) and may not.
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
        Postgres::own(Cluster::start(programs, &self.settings, self.small_disk).await?, self.room).await
    }
}
