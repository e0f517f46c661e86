//! Callers that go to the server together: [`Lane`].
//!
//! A caller that comes while few statements are under way goes alone and at once. One that comes while many are waits
//! in a queue, and when a statement comes back, all that wait go out as the next one. So nothing is delayed for the sake
//! of a larger group, and groups grow with the load by themselves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// What a lane's groups are made of, and how they are sent.
pub(crate) trait Errand: Send + Sync + 'static {
    /// What a caller wants.
    type Item: Send + 'static;
    /// What it gets.
    type Answer: Send + 'static;

    /// About how many bytes an item sends.
    fn weight(item: &Self::Item) -> usize;

    /// Sends a group and answers every one in it. A caller whose answer is dropped learns that its outcome is unknown.
    fn run(self: Arc<Self>, group: Vec<Asked<Self>>) -> impl Future<Output = ()> + Send;
}

/// An item, and where its answer goes.
pub(crate) struct Asked<E: Errand + ?Sized> {
    pub(crate) item: E::Item,
    pub(crate) reply: oneshot::Sender<E::Answer>,
}

/// How much goes together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many statements of one lane are under way before callers wait for each other.
    pub(crate) alone: usize,
    /// How many items go together.
    pub(crate) items: usize,
    /// How many bytes go together, but for one item that is larger.
    pub(crate) bytes: usize,
    /// How many items wait before callers wait for room.
    pub(crate) waiting: usize,
}

pub(crate) struct Lane<E: Errand> {
    inner: Arc<Inner<E>>,
}

struct Inner<E: Errand> {
    errand: Arc<E>,
    limits: Limits,
    room: Arc<Semaphore>,
    state: Mutex<State<E>>,
}

struct State<E: Errand> {
    under_way: usize,
    queue: VecDeque<Waiting<E>>,
}

struct Waiting<E: Errand> {
    asked: Asked<E>,
    /// The caller's runtime. It is alive as long as the caller waits.
    runtime: Handle,
    _room: OwnedSemaphorePermit,
}

/// How a caller goes.
pub(crate) enum Way<E: Errand> {
    /// Alone, now, for as long as it holds this.
    Alone(E::Item, Slot<E>),
    /// With others; its answer comes here.
    Together(oneshot::Receiver<E::Answer>),
}

/// A caller's place among the statements under way. Dropping it sends those who wait.
pub(crate) struct Slot<E: Errand>(Option<Place<E>>);

/// A place among the statements under way.
struct Place<E: Errand>(Option<Arc<Inner<E>>>);

impl<E: Errand> Lane<E> {
    pub(crate) fn new(errand: Arc<E>, limits: Limits) -> Self {
        let state = State { under_way: 0, queue: VecDeque::new() };
        let room = Arc::new(Semaphore::new(limits.waiting));
        Self { inner: Arc::new(Inner { errand, limits, room, state: Mutex::new(state) }) }
    }

    /// Goes alone, or joins those who wait.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is left in the queue. An answer that is not waited for takes its item out of the queue, unless
    /// it was sent.
    pub(crate) async fn enter(&self, item: E::Item) -> Way<E> {
        if let Some(slot) = self.inner.slot() {
            return Way::Alone(item, slot);
        }
        // The semaphore is never closed.
        let Ok(room) = Arc::clone(&self.inner.room).acquire_owned().await else {
            return Way::Alone(item, self.inner.force());
        };
        let mut state = self.inner.state();
        if state.under_way < self.inner.limits.alone {
            state.under_way += 1;
            drop(state);
            return Way::Alone(item, Slot::new(&self.inner));
        }
        let (reply, answer) = oneshot::channel();
        let asked = Asked { item, reply };
        state.queue.push_back(Waiting { asked, runtime: Handle::current(), _room: room });
        Way::Together(answer)
    }
}

impl<E: Errand> Inner<E> {
    fn state(&self) -> MutexGuard<'_, State<E>> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(self: &Arc<Self>) -> Option<Slot<E>> {
        let mut state = self.state();
        if state.under_way >= self.limits.alone {
            return None;
        }
        state.under_way += 1;
        Some(Slot::new(self))
    }

    fn force(self: &Arc<Self>) -> Slot<E> {
        self.state().under_way += 1;
        Slot::new(self)
    }

    /// The next group: those who wait and still want to know, up to the limits.
    fn next_group(&self) -> Vec<Asked<E>> {
        let mut state = self.state();
        let mut group = Vec::with_capacity(state.queue.len().min(self.limits.items));
        let mut bytes = 0_usize;
        while group.len() < self.limits.items
            && let Some(waiting) = state.queue.front()
        {
            let weight = E::weight(&waiting.asked.item);
            if !group.is_empty() && bytes.saturating_add(weight) > self.limits.bytes {
                break;
            }
            let Some(waiting) = state.queue.pop_front() else { break };
            if !waiting.asked.reply.is_closed() {
                bytes = bytes.saturating_add(weight);
                group.push(waiting.asked);
            }
        }
        group
    }
}

impl<E: Errand> Slot<E> {
    fn new(inner: &Arc<Inner<E>>) -> Self {
        Self(Some(Place::new(inner)))
    }
}

impl<E: Errand> Place<E> {
    fn new(inner: &Arc<Inner<E>>) -> Self {
        Self(Some(Arc::clone(inner)))
    }

    /// Gives the place to those who wait, or up.
    fn pass_on(mut self) {
        let Some(inner) = self.0.take() else { return };
        let mut state = inner.state();
        while state.queue.front().is_some_and(|waiting| waiting.asked.reply.is_closed()) {
            state.queue.pop_front();
        }
        let Some(first) = state.queue.front() else {
            state.under_way -= 1;
            return;
        };
        let runtime = first.runtime.clone();
        drop(state);
        let place = Self(Some(inner));
        runtime.spawn(async move {
            let Some(inner) = &place.0 else { return };
            let group = inner.next_group();
            if !group.is_empty() {
                Arc::clone(&inner.errand).run(group).await;
            }
            // Whoever came meanwhile goes next.
            place.pass_on();
        });
    }
}

impl<E: Errand> Drop for Place<E> {
    /// A task whose runtime ended cannot start another one there. Whoever comes next takes along who waits.
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            inner.state().under_way -= 1;
        }
    }
}

impl<E: Errand> Drop for Slot<E> {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.pass_on();
        }
    }
}
