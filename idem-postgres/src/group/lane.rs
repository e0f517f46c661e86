//! Callers that go to the server together: [`Lane`].
//!
//! While there are few callers each goes alone and at once. While there are many they wait in a queue, and when the last
//! group is back, all that wait go out as the next one. So nothing is delayed for the sake of a larger group, and groups
//! grow with the load by themselves. Who are enough for a group of their own do not wait for the last one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Up to how many callers of a [`Crowd`] each goes alone.
    pub(crate) alone: usize,
    /// How many items go together, at least 1.
    pub(crate) items: usize,
    /// How many bytes go together, but for one item that is larger.
    pub(crate) bytes: usize,
    /// How many items, or as many bytes as go together, are enough not to wait until no group is under way.
    pub(crate) enough: usize,
    /// How many groups are under way at a time, at least 1.
    pub(crate) groups: usize,
    /// How many items wait before callers wait for room.
    pub(crate) waiting: usize,
}

/// How many callers there are in the lanes that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd(Arc<AtomicUsize>);

/// A caller in a crowd, until it is dropped.
#[derive(Debug)]
pub(crate) struct Presence(Crowd);

impl Crowd {
    /// One more; how many that makes.
    fn join(&self) -> (Presence, usize) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (Presence(self.clone()), before + 1)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Lane<E: Errand> {
    inner: Arc<Inner<E>>,
}

struct Inner<E: Errand> {
    errand: Arc<E>,
    limits: Limits,
    crowd: Crowd,
    room: Arc<Semaphore>,
    state: Mutex<State<E>>,
}

struct State<E: Errand> {
    /// How many groups are under way.
    under_way: usize,
    queue: VecDeque<Waiting<E>>,
    /// What the items in the queue weigh.
    bytes: usize,
}

struct Waiting<E: Errand> {
    asked: Asked<E>,
    /// The caller's runtime. It is alive as long as the caller waits.
    runtime: Handle,
    _room: OwnedSemaphorePermit,
}

/// How a caller goes. It counts as one for as long as it holds its presence.
pub(crate) enum Way<E: Errand> {
    /// Alone, now.
    Alone(E::Item, Presence),
    /// With others; its answer comes here.
    Together(oneshot::Receiver<E::Answer>, Presence),
}

impl<E: Errand> Lane<E> {
    pub(crate) fn new(errand: Arc<E>, limits: Limits, crowd: &Crowd) -> Self {
        let state = State { under_way: 0, queue: VecDeque::new(), bytes: 0 };
        let room = Arc::new(Semaphore::new(limits.waiting));
        Self { inner: Arc::new(Inner { errand, limits, crowd: crowd.clone(), room, state: Mutex::new(state) }) }
    }

    /// Goes alone, or joins those who wait.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is left in the queue. An answer that is not waited for takes its item out of the queue, unless
    /// it was sent.
    pub(crate) async fn enter(&self, item: E::Item) -> Way<E> {
        let inner = &self.inner;
        let (presence, callers) = inner.crowd.join();
        if callers <= inner.limits.alone {
            return Way::Alone(item, presence);
        }
        // The semaphore is never closed.
        let Ok(room) = Arc::clone(&inner.room).acquire_owned().await else { return Way::Alone(item, presence) };
        let weight = E::weight(&item);
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { asked: Asked { item, reply }, runtime: Handle::current(), _room: room };
        let mut state = inner.state();
        state.queue.push_back(waiting);
        state.bytes = state.bytes.saturating_add(weight);
        Inner::send(inner, state);
        Way::Together(answer, presence)
    }
}

impl<E: Errand> State<E> {
    fn pop(&mut self) -> Option<Waiting<E>> {
        let waiting = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(E::weight(&waiting.asked.item));
        Some(waiting)
    }

    /// Whether those who wait go now.
    fn may_go(&self, limits: &Limits) -> bool {
        let enough = self.queue.len() >= limits.enough || self.bytes >= limits.bytes;
        self.under_way == 0 || (enough && self.under_way < limits.groups)
    }
}

impl<E: Errand> Inner<E> {
    fn state(&self) -> MutexGuard<'_, State<E>> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends those who wait, if they may go.
    fn send(self: &Arc<Self>, mut state: MutexGuard<'_, State<E>>) {
        while state.queue.front().is_some_and(|waiting| waiting.asked.reply.is_closed()) {
            state.pop();
        }
        let Some(first) = state.queue.front().filter(|_| state.may_go(&self.limits)) else { return };
        let runtime = first.runtime.clone();
        state.under_way += 1;
        drop(state);
        let place = Place(Arc::clone(self));
        runtime.spawn(async move {
            let inner = Arc::clone(&place.0);
            let group = inner.next_group();
            if !group.is_empty() {
                Arc::clone(&inner.errand).run(group).await;
            }
            // Whoever came meanwhile goes next.
            drop(place);
            inner.send(inner.state());
        });
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
            let Some(waiting) = state.pop() else { break };
            if !waiting.asked.reply.is_closed() {
                bytes = bytes.saturating_add(weight);
                group.push(waiting.asked);
            }
        }
        group
    }
}

/// A group's place among those under way. It is given up with the group's task, also if that ends with its runtime: then
/// nobody is there to go on, and whoever comes next takes along who waits.
struct Place<E: Errand>(Arc<Inner<E>>);

impl<E: Errand> Drop for Place<E> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
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

    const LIMITS: Limits = Limits { alone: 0, items: 3, bytes: 100, enough: 3, groups: 1, waiting: 8 };

    type Answer = (oneshot::Receiver<usize>, Presence);

    fn lane(limits: Limits) -> (Lane<Counted>, Arc<Counted>, mpsc::UnboundedReceiver<Vec<u32>>) {
        let (begun, groups) = mpsc::unbounded_channel();
        let errand = Arc::new(Counted { begun, go_on: Semaphore::new(0) });
        (Lane::new(Arc::clone(&errand), limits, &Crowd::default()), errand, groups)
    }

    async fn alone(lane: &Lane<Counted>, item: u32) -> Presence {
        match lane.enter(item).await {
            Way::Alone(_, presence) => presence,
            Way::Together(..) => panic!("{item} waits"),
        }
    }

    async fn together(lane: &Lane<Counted>, item: u32) -> Answer {
        match lane.enter(item).await {
            Way::Alone(..) => panic!("{item} goes alone"),
            Way::Together(answer, presence) => (answer, presence),
        }
    }

    /// Lets every task go as far as it can; no group has begun.
    async fn nothing_begins(groups: &mut mpsc::UnboundedReceiver<Vec<u32>>) {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert_eq!(groups.try_recv(), Err(mpsc::error::TryRecvError::Empty));
    }

    #[tokio::test]
    async fn who_comes_while_a_group_is_under_way_goes_with_the_next() {
        let (lane, errand, mut groups) = lane(LIMITS);
        let first = together(&lane, 1).await;
        assert_eq!(groups.recv().await.unwrap(), [1], "nobody is waited for");
        let answers = [together(&lane, 2).await, together(&lane, 3).await, together(&lane, 4).await];
        let late = together(&lane, 5).await;
        nothing_begins(&mut groups).await;
        errand.go_on.add_permits(1);
        assert_eq!(first.0.await.unwrap(), 1);
        assert_eq!(groups.recv().await.unwrap(), [2, 3, 4], "as many as may");
        errand.go_on.add_permits(2);
        for answer in answers {
            assert_eq!(answer.0.await.unwrap(), 3);
        }
        assert_eq!(groups.recv().await.unwrap(), [5]);
        assert_eq!(late.0.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn the_few_go_alone() {
        let (lane, _errand, mut groups) = lane(Limits { alone: 2, ..LIMITS });
        let (one, other) = (alone(&lane, 1).await, alone(&lane, 2).await);
        let third = together(&lane, 3).await;
        assert_eq!(groups.recv().await.unwrap(), [3], "who is alone is in nobody's way");
        drop(one);
        let fourth = together(&lane, 4).await;
        nothing_begins(&mut groups).await;
        // Who waits counts, and who went away does not.
        drop((other, third, fourth));
        drop((alone(&lane, 5).await, alone(&lane, 6).await));
        drop(alone(&lane, 7).await);
    }

    #[tokio::test]
    async fn lanes_of_one_crowd_count_together() {
        let (lane, errand, _groups) = lane(Limits { alone: 1, ..LIMITS });
        let other = Lane::new(errand, Limits { alone: 1, ..LIMITS }, &lane.inner.crowd);
        let _one = alone(&lane, 1).await;
        drop(together(&other, 2).await);
    }

    #[tokio::test]
    async fn enough_for_a_group_do_not_wait() {
        let (lane, errand, mut groups) = lane(Limits { groups: 2, ..LIMITS });
        let mut answers = vec![together(&lane, 1).await];
        assert_eq!(groups.recv().await.unwrap(), [1]);
        for item in 2..=4 {
            nothing_begins(&mut groups).await;
            answers.push(together(&lane, item).await);
        }
        assert_eq!(groups.recv().await.unwrap(), [2, 3, 4]);
        for item in 5..=7 {
            answers.push(together(&lane, item).await);
        }
        nothing_begins(&mut groups).await;
        errand.go_on.add_permits(3);
        assert_eq!(groups.recv().await.unwrap(), [5, 6, 7]);
        for answer in answers {
            answer.0.await.unwrap();
        }
        assert_eq!(lane.inner.state().bytes, 0);
        // In bytes, too.
        let one = together(&lane, 1).await;
        assert_eq!(groups.recv().await.unwrap(), [1]);
        let other = together(&lane, 100).await;
        assert_eq!(groups.recv().await.unwrap(), [100]);
        errand.go_on.add_permits(2);
        assert_eq!((one.0.await.unwrap(), other.0.await.unwrap()), (1, 1));
    }

    #[tokio::test]
    async fn who_is_gone_before_it_was_sent_is_not_sent() {
        let (lane, errand, mut groups) = lane(LIMITS);
        let first = together(&lane, 1).await;
        assert_eq!(groups.recv().await.unwrap(), [1]);
        drop(together(&lane, 2).await);
        let stays = together(&lane, 3).await;
        errand.go_on.add_permits(1);
        assert_eq!(first.0.await.unwrap(), 1);
        assert_eq!(groups.recv().await.unwrap(), [3]);
        // Nobody but such: no group at all.
        drop(together(&lane, 4).await);
        errand.go_on.add_permits(1);
        assert_eq!(stays.0.await.unwrap(), 1);
        nothing_begins(&mut groups).await;
        let state = lane.inner.state();
        assert_eq!((state.under_way, state.bytes), (0, 0));
    }

    #[tokio::test]
    async fn a_group_is_bounded_in_bytes_but_for_a_single_item() {
        let (lane, errand, mut groups) = lane(LIMITS);
        let mut answers = vec![together(&lane, 1).await];
        for item in [500, 60, 50] {
            answers.push(together(&lane, item).await);
        }
        errand.go_on.add_permits(4);
        for expected in [[1], [500], [60], [50]] {
            assert_eq!(groups.recv().await.unwrap(), expected);
        }
        for answer in answers {
            assert_eq!(answer.0.await.unwrap(), 1);
        }
    }

    #[tokio::test]
    async fn a_full_queue_makes_callers_wait() {
        let (lane, errand, mut groups) = lane(LIMITS);
        let mut answers = vec![together(&lane, 0).await];
        assert_eq!(groups.recv().await.unwrap(), [0]);
        for item in 1..=8 {
            answers.push(together(&lane, item).await);
        }
        let ninth = lane.enter(9);
        tokio::pin!(ninth);
        assert!(futures_util::poll!(ninth.as_mut()).is_pending(), "there is no room");
        errand.go_on.add_permits(1);
        assert_eq!(groups.recv().await.unwrap(), [1, 2, 3]);
        let Way::Together(answer, _presence) = ninth.await else { panic!("there are many") };
        errand.go_on.add_permits(10);
        for answer in answers {
            answer.0.await.unwrap();
        }
        answer.await.unwrap();
    }

    /// A group's task ends with the runtime that it runs on. Those in it learn that nobody knows; the lane goes on.
    #[test]
    fn a_lane_outlives_a_runtime() {
        let (lane, errand, mut groups) = lane(LIMITS);
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (one, other) = (runtime(), runtime());
        let lost = one.block_on(together(&lane, 2));
        assert_eq!(groups.blocking_recv().unwrap(), [2]);
        let waits = other.block_on(together(&lane, 3));
        one.shutdown_timeout(Duration::from_secs(10));
        assert!(other.block_on(lost.0).is_err(), "its group will never answer");
        // Nobody was there to go on. Whoever comes next takes along who waits.
        let next = other.block_on(together(&lane, 4));
        errand.go_on.add_permits(1);
        assert_eq!(other.block_on(waits.0).unwrap(), 2);
        assert_eq!(other.block_on(next.0).unwrap(), 2);
    }
}
