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
    /// How many statements of one lane are under way before callers wait for each other. Zero, for tests: nobody goes
    /// alone, and a group of one is a group.
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
        if state.under_way == 0 {
            state.under_way = 1;
            drop(state);
            Place(Some(Arc::clone(&self.inner))).pass_on();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// Answers every item with the size of its group, when it is let go on.
    struct Counted {
        begun: mpsc::UnboundedSender<Vec<u32>>,
        go_on: Semaphore,
    }

    impl Errand for Counted {
        type Item = u32;
        type Answer = usize;

        fn weight(item: &u32) -> usize {
            *item as usize
        }

        async fn run(self: Arc<Self>, group: Vec<Asked<Self>>) {
            let _gone = self.begun.send(group.iter().map(|asked| asked.item).collect());
            if let Ok(permit) = self.go_on.acquire().await {
                permit.forget();
            }
            let size = group.len();
            for asked in group {
                let _gone = asked.reply.send(size);
            }
        }
    }

    const LIMITS: Limits = Limits { alone: 1, items: 3, bytes: 100, waiting: 8 };

    fn lane() -> (Lane<Counted>, Arc<Counted>, mpsc::UnboundedReceiver<Vec<u32>>) {
        let (begun, groups) = mpsc::unbounded_channel();
        let errand = Arc::new(Counted { begun, go_on: Semaphore::new(0) });
        (Lane::new(Arc::clone(&errand), LIMITS), errand, groups)
    }

    async fn alone(lane: &Lane<Counted>, item: u32) -> Slot<Counted> {
        match lane.enter(item).await {
            Way::Alone(_, slot) => slot,
            Way::Together(_) => panic!("{item} waits"),
        }
    }

    async fn together(lane: &Lane<Counted>, item: u32) -> oneshot::Receiver<usize> {
        match lane.enter(item).await {
            Way::Alone(..) => panic!("{item} goes alone"),
            Way::Together(answer) => answer,
        }
    }

    #[tokio::test]
    async fn who_comes_while_others_are_under_way_goes_with_the_next() {
        let (lane, errand, mut groups) = lane();
        let first = alone(&lane, 1).await;
        let answers = [together(&lane, 2).await, together(&lane, 3).await, together(&lane, 4).await];
        let late = together(&lane, 5).await;
        assert!(groups.try_recv().is_err(), "nobody goes before the first is back");
        drop(first);
        assert_eq!(groups.recv().await.unwrap(), [2, 3, 4], "as many as may");
        errand.go_on.add_permits(2);
        for answer in answers {
            assert_eq!(answer.await.unwrap(), 3);
        }
        assert_eq!(groups.recv().await.unwrap(), [5]);
        assert_eq!(late.await.unwrap(), 1);
        // The place is given up when nobody waits: soon the next one goes alone again.
        while lane.inner.state().under_way > 0 {
            tokio::task::yield_now().await;
        }
        drop(alone(&lane, 6).await);
    }

    #[tokio::test]
    async fn who_is_gone_before_it_was_sent_is_not_sent() {
        let (lane, errand, mut groups) = lane();
        let first = alone(&lane, 1).await;
        drop(together(&lane, 2).await);
        let stays = together(&lane, 3).await;
        drop(first);
        errand.go_on.add_permits(1);
        assert_eq!(groups.recv().await.unwrap(), [3]);
        assert_eq!(stays.await.unwrap(), 1);
        // Nobody but such: no group at all.
        let first = alone_soon(&lane).await;
        drop(together(&lane, 4).await);
        drop(first);
        assert_eq!(lane.inner.state().under_way, 0);
        assert!(groups.try_recv().is_err());
    }

    async fn alone_soon(lane: &Lane<Counted>) -> Slot<Counted> {
        while lane.inner.state().under_way > 0 {
            tokio::task::yield_now().await;
        }
        alone(lane, 0).await
    }

    #[tokio::test]
    async fn a_group_is_bounded_in_bytes_but_for_a_single_item() {
        let (lane, errand, mut groups) = lane();
        let first = alone(&lane, 1).await;
        let answers = [together(&lane, 500).await, together(&lane, 60).await, together(&lane, 50).await];
        drop(first);
        errand.go_on.add_permits(3);
        for expected in [[500], [60], [50]] {
            assert_eq!(groups.recv().await.unwrap(), expected);
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap(), 1);
        }
    }

    #[tokio::test]
    async fn a_full_queue_makes_callers_wait() {
        let (lane, errand, mut groups) = lane();
        let first = alone(&lane, 0).await;
        let mut answers = Vec::new();
        for item in 1..=8 {
            answers.push(together(&lane, item).await);
        }
        let ninth = lane.enter(9);
        tokio::pin!(ninth);
        assert!(futures_util::poll!(ninth.as_mut()).is_pending(), "there is no room");
        drop(first);
        assert_eq!(groups.recv().await.unwrap(), [1, 2, 3]);
        let Way::Together(answer) = ninth.await else { panic!("the place is taken") };
        errand.go_on.add_permits(10);
        for answer in answers {
            answer.await.unwrap();
        }
        answer.await.unwrap();
    }

    /// A group's task ends with the runtime that it runs on. Those in it learn that nobody knows; the lane goes on.
    #[test]
    fn a_lane_outlives_a_runtime() {
        let (lane, errand, mut groups) = lane();
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (one, other) = (runtime(), runtime());
        let first = one.block_on(alone(&lane, 1));
        let lost = one.block_on(together(&lane, 2));
        drop(first);
        assert_eq!(groups.blocking_recv().unwrap(), [2]);
        let waits = other.block_on(together(&lane, 3));
        one.shutdown_timeout(Duration::from_secs(10));
        assert!(other.block_on(lost).is_err(), "its group will never answer");
        // Nobody was there to go on. Whoever comes next takes along who waits.
        let next = other.block_on(alone(&lane, 4));
        errand.go_on.add_permits(1);
        drop(next);
        assert_eq!(other.block_on(waits).unwrap(), 1);
    }
}
