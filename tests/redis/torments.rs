//! What can be done to a Redis while others count on it.

use crate::history::{CAP, Landings, UnderWay};
use crate::support::{busy, connect, name, now, somebody};
use idem_redis_cache::CacheConfig;
use idem_tests::rig::redis::{Flavour, Redis};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redis::{Cmd, FromRedisValue, cmd};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What is done, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    LeftAlone,
    /// `FLUSHALL`, fifty times a second.
    Flushed,
    /// `CLIENT PAUSE ALL`, for longer than anybody waits.
    Paused,
    /// `CLIENT PAUSE WRITE`, likewise.
    WritesPaused,
    /// `SIGSTOP`, and `SIGCONT` some time later.
    Stopped,
    /// `SIGKILL`, and a new start.
    Crashing,
    /// It holds more than it may, and evicts nothing.
    Full,
    /// It is the replica of nobody.
    ReadOnly,
    /// It asks for a password that nobody has.
    Locked,
    /// Its entries are overwritten with such as others could have made: they are believed.
    Lying,
    /// Its entries are overwritten with what nobody makes.
    Nonsense,
    /// Entries of the past come back, and everything is loaded anew from a dump.
    Restored,
    /// Something else listens there, and says anything.
    Babbling,
    /// Something listens there and says nothing.
    Silent,
    /// One of the others after the other.
    Everything,
}

impl Kind {
    /// Whether some calls get through, whether some fail, and whether there are entries that nobody makes.
    pub(crate) fn expects(self) -> (bool, bool, bool) {
        match self {
            Self::LeftAlone | Self::Flushed | Self::Lying => (true, false, false),
            Self::Paused | Self::WritesPaused | Self::Stopped | Self::Crashing => (true, true, false),
            Self::Full | Self::ReadOnly | Self::Locked => (true, true, false),
            Self::Nonsense | Self::Restored => (true, false, true),
            Self::Babbling | Self::Silent => (false, true, false),
            Self::Everything => (true, true, true),
        }
    }

    fn is_a_server(self) -> bool {
        !matches!(self, Self::Babbling | Self::Silent)
    }
}

/// A Redis, or what stands in its place, to which something is done in the background.
#[derive(Debug)]
pub(crate) struct Torment {
    kind: Kind,
    url: String,
    server: Option<Redis>,
    landings: Arc<Landings>,
    prefix: Mutex<String>,
    deeds: AtomicU64,
    /// Entries that once were: name and dump.
    dumps: Mutex<Vec<(String, Vec<u8>)>>,
    work: Mutex<Vec<JoinHandle<()>>>,
}

impl Torment {
    pub(crate) async fn begin(kind: Kind, seed: u64) -> Arc<Self> {
        let settings = [("enable-debug-command", "yes"), ("maxmemory-policy", "noeviction")];
        let (server, listener) = if kind.is_a_server() {
            (Some(Redis::own(Flavour::Redis, &settings).await.unwrap()), None)
        } else {
            (None, Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()))
        };
        let url = match (&server, &listener) {
            (Some(server), _) => server.url().to_owned(),
            (None, Some(listener)) => format!("redis://{}/", listener.local_addr().unwrap()),
            (None, None) => unreachable!("it is one of them"),
        };
        let torment = Arc::new(Self {
            kind,
            url,
            server,
            landings: Arc::default(),
            prefix: Mutex::default(),
            deeds: AtomicU64::new(0),
            dumps: Mutex::default(),
            work: Mutex::default(),
        });
        let mut rng = StdRng::seed_from_u64(seed);
        let doing = Arc::clone(&torment);
        torment.work().push(tokio::spawn(async move {
            if let Some(listener) = listener {
                return doing.listen(listener, &mut rng).await;
            }
            loop {
                doing.hurt(kind, &mut rng).await;
                doing.deeds.fetch_add(1, Ordering::Relaxed);
            }
        }));
        torment
    }

    /// Stops, and says how often something was done.
    pub(crate) async fn end(self: Arc<Self>) -> u64 {
        let work = std::mem::take(&mut *self.work());
        for task in work {
            task.abort();
            // What went wrong in it must be seen.
            if let Err(ended) = task.await
                && ended.is_panic()
            {
                std::panic::resume_unwind(ended.into_panic());
            }
        }
        self.deeds.load(Ordering::Relaxed)
    }

    /// Found again quickly, so that a test sees much of it.
    pub(crate) fn config(&self) -> CacheConfig {
        let config = CacheConfig::from_url(self.url.as_str()).unwrap();
        config.with_longest_pause(Duration::from_millis(20)).with_connect_timeout(Duration::from_millis(200))
    }

    pub(crate) fn landings(&self) -> &Arc<Landings> {
        &self.landings
    }

    /// Entries of this prefix are of interest from now on.
    pub(crate) fn is_about(&self, prefix: &str) {
        prefix.clone_into(&mut self.prefix.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A command that may still be on its way has landed, or never will, when Redis has answered others that were sent
    /// later.
    pub(crate) fn settle(self: &Arc<Self>, landing: UnderWay) {
        let url = self.url.clone();
        let is_a_server = self.kind.is_a_server();
        self.work().push(tokio::spawn(async move {
            if is_a_server && let Ok(mut connection) = connect(&url).await {
                // A write, since writes alone may be held up; two, since the first may be read before what was sent
                // earlier on another connection.
                for _ in 0..2 {
                    let write = cmd("SET").arg("barrier").arg("").arg("PX").arg(1).exec_async(&mut connection).await;
                    // Refused is answered, too; and with a server that dies, dies what it had not read.
                    let _refused = write;
                }
            }
            drop(landing);
        }));
    }

    fn work(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does it once, and waits as long as it takes to be felt.
    async fn hurt(&self, kind: Kind, rng: &mut StdRng) {
        match kind {
            Kind::LeftAlone => sleep(Duration::from_millis(20)).await,
            Kind::Flushed => {
                self.tell(&cmd("FLUSHALL")).await;
                sleep(Duration::from_millis(20)).await;
            }
            Kind::Paused | Kind::WritesPaused => {
                let which = if kind == Kind::Paused { "ALL" } else { "WRITE" };
                self.tell(cmd("CLIENT").arg("PAUSE").arg(60).arg(which)).await;
                // It is answered when the pause is over.
                self.tell(cmd("SET").arg("pause").arg("")).await;
                sleep(Duration::from_millis(40)).await;
            }
            Kind::Stopped => {
                self.server().pause().await;
                sleep(Duration::from_millis(100)).await;
                self.server().resume();
                sleep(Duration::from_millis(60)).await;
            }
            Kind::Crashing => {
                self.server().crash().await;
                self.server().start_again().await;
                sleep(Duration::from_millis(150)).await;
            }
            Kind::Full => {
                self.tell(cmd("CONFIG").arg("SET").arg("maxmemory").arg("1mb")).await;
                let lump = vec![b'x'; 100_000];
                for number in 0..20 {
                    self.tell(cmd("SET").arg(format!("lump{number}")).arg(&lump)).await;
                }
                sleep(Duration::from_millis(60)).await;
                self.tell(cmd("CONFIG").arg("SET").arg("maxmemory").arg("0")).await;
                sleep(Duration::from_millis(80)).await;
            }
            Kind::ReadOnly => {
                self.tell(cmd("REPLICAOF").arg("127.0.0.1").arg("1")).await;
                sleep(Duration::from_millis(60)).await;
                self.tell(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
                sleep(Duration::from_millis(80)).await;
            }
            Kind::Locked => {
                let mut inside = connect(&self.url).await.unwrap();
                for (password, pause) in [("secret", 60), ("", 80)] {
                    cmd("CONFIG").arg("SET").arg("requirepass").arg(password).exec_async(&mut inside).await.unwrap();
                    // Who is connected has been let in for good.
                    cmd("CLIENT").arg("KILL").arg("TYPE").arg("NORMAL").exec_async(&mut inside).await.unwrap();
                    sleep(Duration::from_millis(pause)).await;
                }
            }
            Kind::Lying => {
                let Some(name) = self.a_name(rng).await else { return sleep(Duration::from_millis(5)).await };
                let lives = rng.random_range(1..=CAP.as_millis() as u64);
                let landing = self.landings.under_way(&name);
                self.tell(cmd("SET").arg(&name).arg(busy(somebody())).arg("PX").arg(lives)).await;
                drop(landing);
                sleep(Duration::from_millis(25)).await;
            }
            Kind::Nonsense => {
                if let Some(name) = self.a_name(rng).await {
                    self.write_nonsense(&name, rng).await;
                }
                sleep(Duration::from_millis(5)).await;
            }
            Kind::Restored => self.restore(rng).await,
            Kind::Everything => {
                const ALL: [Kind; 11] = [
                    Kind::Flushed,
                    Kind::Paused,
                    Kind::WritesPaused,
                    Kind::Stopped,
                    Kind::Crashing,
                    Kind::Full,
                    Kind::ReadOnly,
                    Kind::Locked,
                    Kind::Lying,
                    Kind::Nonsense,
                    Kind::Restored,
                ];
                let kind = *ALL.choose(rng).unwrap();
                Box::pin(self.hurt(kind, rng)).await;
            }
            Kind::Babbling | Kind::Silent => unreachable!("there is no server"),
        }
    }

    /// What no cache would have written, each of which a reader has to see through.
    async fn write_nonsense(&self, name: &str, rng: &mut StdRng) {
        let settled = b"1s".to_vec();
        let ours = busy(somebody());
        let lives = CAP.as_millis() as u64;
        let with_end = |value: Vec<u8>, lives: u64| cmd("SET").arg(name).arg(value).arg("PX").arg(lives).take();
        let mut random = vec![0; rng.random_range(1..40)];
        rng.fill(&mut random[..]);
        // Random bytes are none of ours but for a chance that nobody lives to see; two of them may be.
        random[0] = b'?';
        let forged = match rng.random_range(0..12) {
            0 => cmd("SET").arg(name).arg(ours).take(),
            1 => with_end(ours, lives + 1_000),
            2 => with_end(ours, u64::from(u32::MAX)),
            3 => cmd("SET").arg(name).arg(settled).take(),
            4 => with_end(ours[..rng.random_range(1..ours.len())].to_vec(), lives),
            5 => with_end([&ours[..], b"!"].concat(), lives),
            6 => with_end([b"2", &ours[1..]].concat(), lives),
            7 => with_end(random, lives),
            8 => with_end(vec![b'1'; 10_000_000], lives),
            9 => cmd("EVAL").arg(LIST).arg(1).arg(name).take(),
            10 => cmd("EVAL").arg(HASH).arg(1).arg(name).take(),
            _ => with_end(b"completed: {\"status\":201}".to_vec(), lives),
        };
        const LIST: &str =
            "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], '1b') return redis.call('PEXPIRE', KEYS[1], 40)";
        const HASH: &str = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], '1b', '1b')";
        self.forge(name, &forged).await;
    }

    /// Overwrites an entry with what nobody may believe.
    async fn forge(&self, name: &str, command: &Cmd) {
        let began = now();
        if self.ask::<redis::Value>(command).await.is_some() {
            self.landings.forged(name, began);
        }
    }

    /// Writes down what is there, and brings back what was, with the end that it had, without one, or with a later one.
    async fn restore(&self, rng: &mut StdRng) {
        if let Some(name) = self.a_name(rng).await
            && let Some(Some(dump)) = self.ask::<Option<Vec<u8>>>(cmd("DUMP").arg(&name)).await
        {
            self.dumps.lock().unwrap_or_else(PoisonError::into_inner).push((name, dump));
        }
        let old = self.dumps.lock().unwrap_or_else(PoisonError::into_inner).choose(rng).cloned();
        if let Some((name, dump)) = old {
            let lives =
                [0, CAP.as_millis() as u64, CAP.as_millis() as u64 * 50].choose(rng).copied().unwrap_or_default();
            let restore = cmd("RESTORE").arg(&name).arg(lives).arg(dump).arg("REPLACE").take();
            if lives == CAP.as_millis() as u64 {
                let landing = self.landings.under_way(&name);
                self.tell(&restore).await;
                drop(landing);
            } else {
                self.forge(&name, &restore).await;
            }
        }
        if rng.random_range(0..5) == 0 {
            self.tell(cmd("DEBUG").arg("RELOAD")).await;
        }
        sleep(Duration::from_millis(10)).await;
    }

    /// The name of an entry: of a place of the model, there or not, or of any that is there.
    async fn a_name(&self, rng: &mut StdRng) -> Option<String> {
        let prefix = self.prefix.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if prefix.is_empty() {
            return None;
        }
        let mut names: Vec<String> = self.ask(cmd("KEYS").arg(format!("{prefix}*"))).await.unwrap_or_default();
        if names.is_empty() || rng.random_range(0..2) == 0 {
            names = (0..idem_tests::row::PLACES).map(|place| name(&prefix, &idem_tests::identity(place))).collect();
        }
        names.retain(|name| !name.ends_with("probe"));
        names.choose(rng).cloned()
    }

    fn server(&self) -> &Redis {
        self.server.as_ref().unwrap()
    }

    /// Gives a command, whatever becomes of it: the server may be in no state to obey.
    async fn tell(&self, command: &Cmd) {
        let _whatever = self.ask::<redis::Value>(command).await;
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        let mut connection = connect(&self.url).await.ok()?;
        command.query_async(&mut connection).await.ok()
    }

    /// Takes connections, and says what comes to mind to everything that it hears.
    async fn listen(&self, listener: TcpListener, rng: &mut StdRng) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            self.deeds.fetch_add(1, Ordering::Relaxed);
            let rng = StdRng::from_rng(rng);
            let babbles = self.kind == Kind::Babbling;
            self.work().push(tokio::spawn(async move { talk(stream, babbles, rng).await }));
        }
    }
}

/// Until the other side has enough of it.
async fn talk(mut stream: TcpStream, babbles: bool, mut rng: StdRng) {
    let mut heard = [0; 4_096];
    while let Ok(1..) = stream.read(&mut heard).await {
        if babbles && stream.write_all(&babble(&mut rng)).await.is_err() {
            return;
        }
    }
}

/// Half of it looks like the protocol.
fn babble(rng: &mut StdRng) -> Vec<u8> {
    let text: &[u8] = match rng.random_range(0..12) {
        0 => b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
        1 => b"$-1\r\n$-2\r\n",
        2 => b"$2147483647\r\nabc",
        3 => b"*2147483647\r\n",
        4 => b"%2147483647\r\n",
        5 => b"*3\r\n:1\r\n$18\r\n1b0123456789abcdef\r\n:9223372036854775807\r\n",
        6 => b"-MOVED 1 127.0.0.1:1\r\n-ASK 1 nowhere:0\r\n",
        7 => b">3\r\n+invalidate\r\n*1\r\n$1\r\nx\r\n_\r\n",
        8 => b":99999999999999999999999999\r\n,nan\r\n#x\r\n",
        9 => return b"*1\r\n".repeat(100_000),
        10 => b"HTTP/1.1 400 Bad Request\r\n\r\n",
        _ => {
            let mut random = vec![0; rng.random_range(1..2_000)];
            rng.fill(&mut random[..]);
            return random;
        }
    };
    text.to_vec()
}
