//! A server in a container, for machines that have a container engine and no PostgreSQL.
//!
//! It may not be stopped or killed by tests, and its `initdb` is the image's. Unlike a server from programs it is
//! removed by the engine's own program (`docker` or `podman`) if the test process is killed; without that program it
//! stays.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::{Postgres, Source, Version, Yard, version_num};
use crate::rig::Error;
use crate::rig::wait::{PATIENCE, until};

const WATCHDOG: &str =
    "trap '' INT TERM HUP; while read -r _; do :; done; docker rm -fv \"$1\" || podman rm -fv \"$1\"";

#[derive(Debug)]
pub(super) struct Container {
    container: ContainerAsync<GenericImage>,
    watchdog: Child,
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _status = self.watchdog.wait();
    }
}

/// A server in a container, or an error that tells both what is `missing` on the machine and what the engine said.
pub(super) async fn instead(version: Version, missing: Error) -> Result<Postgres, Error> {
    match start(version).await {
        Ok(server) => Ok(server),
        Err(problem) => Err(match missing {
            Error::Missing { what, help } => {
                Error::Missing { what: format!("{what}; and no container engine helped out: {problem}"), help }
            }
            other => other,
        }),
    }
}

async fn start(version: Version) -> Result<Postgres, String> {
    let tag = match version {
        Version::Any => "18".to_owned(),
        Version::Major(major) => major.to_string(),
    };
    let ready = "database system is ready to accept connections";
    let image = GenericImage::new("postgres", &tag)
        .with_exposed_port(5432.tcp())
        // Once from the server that the image sets up with, and once from the one that stays.
        .with_wait_for(WaitFor::message_on_stdout(ready))
        .with_wait_for(WaitFor::message_on_stderr(ready))
        .with_env_var("POSTGRES_HOST_AUTH_METHOD", "trust");
    let container = image.start().await.map_err(|error| error.to_string())?;
    let watchdog = Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog", container.id()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let container = Container { container, watchdog };
    let host = container.container.get_host().await.map_err(|error| error.to_string())?;
    let port = container.container.get_host_port_ipv4(5432).await.map_err(|error| error.to_string())?;
    let superuser_url = format!("postgres://postgres@{host}:{port}/postgres");
    let connects = || async { version_num(&superuser_url).await.ok() };
    let version_num = until("the container takes connections", PATIENCE, connects).await;
    let version_num = version_num.map_err(|error| error.to_string())?;
    let yard = Yard::new(&superuser_url, Some(64));
    Ok(Postgres { source: Source::Container(Box::new(container)), superuser_url, version_num, yard })
}
