//! What can be done to a store, and how it is drawn at random.

use crate::model::{Actor, Model};
use crate::row::{HOUR, Micros, PLACES, Place};
use proptest::prelude::*;

/// How many actors there are.
pub const ACTORS: usize = 3;

/// One step of a test. Every command can be given in every state; where it makes no sense it does nothing.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Command {
    /// An idle actor makes a claim and asks with it.
    Ask { actor: usize, terms: Terms, fault: Fault },
    /// A claimer whose reply was lost, or who has not swapped yet, asks again with the same claim.
    AskAgain { actor: usize, fault: Fault },
    /// A claimer swaps what it decided to swap, some time after it decided.
    Take { actor: usize, fault: Fault },
    /// An owner makes progress.
    Progress { actor: usize, step: Step, fault: Fault },
    /// An owner settles.
    Settle { actor: usize, how: How, floor: bool, fault: Fault },
    /// An owner whose last write is unknown loads the row, concludes, and sends again if it may.
    Resolve { actor: usize, fault: Fault },
    /// An actor's process is gone.
    Die { actor: usize },
    /// Anybody reads a row.
    Load(Place),
    /// Purges in batches until nothing is left to purge.
    Purge { batch: usize, unresolved_after: Option<Micros> },
    /// Erases a scope.
    Erase { scope: u8, everything: bool },
    /// Lists the stuck rows, page by page.
    Stuck { page: usize },
    /// Counts the rows.
    Stats,
    /// Every write that was under way lands.
    LandLate,
    /// The store's clock moves, backwards too.
    MoveClock(Micros),
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields are those of `Claim`")]
pub struct Terms {
    pub place: Place,
    pub request: u8,
    pub policy: Policy,
    pub leased: bool,
    pub retained: bool,
    pub max_attempts: u32,
    pub windowed: bool,
}

/// Who may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Takeover`")]
pub enum Policy {
    Resume,
    OnlyBeforeEffect,
    Never,
}

/// An owner's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Change`")]
pub enum Step {
    Renew,
    BeginEffect,
    Checkpoint(u8),
}

/// How an owner settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Change`")]
pub enum How {
    Complete(u8),
    Fail { verified: bool },
    Abandon,
}

/// What goes wrong with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is refused: not applied, and the sender knows.
    Refuse,
    /// It is lost: not applied, and the sender does not know.
    LoseRequest,
    /// Its reply is lost: applied, and the sender does not know.
    LoseReply,
    /// It is under way for a while; the sender does not know.
    LandLate,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::Refuse),
        1 => Just(Fault::LoseRequest),
        2 => Just(Fault::LoseReply),
        2 => Just(Fault::LandLate),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![6 => Just(0), 2 => 0..PLACES]
}

fn terms(exact: bool) -> impl Strategy<Value = Terms> {
    let policy = prop_oneof![
        4 => Just(Policy::Resume),
        2 => Just(Policy::OnlyBeforeEffect),
        1 => Just(Policy::Never),
    ];
    // A provider window of zero is over at once or not at all, as the clock ticks: only an exact clock can tell.
    let windowed = if exact { prop_oneof![7 => Just(true), 1 => Just(false)].boxed() } else { Just(true).boxed() };
    let request = prop_oneof![7 => Just(0_u8), 1 => Just(1_u8)];
    let attempts = prop_oneof![4 => Just(5_u32), 1 => 1..4_u32];
    (place(), request, policy, prop::bool::weighted(0.5), prop::bool::weighted(0.6), attempts, windowed).prop_map(
        |(place, request, policy, leased, retained, max_attempts, windowed)| Terms {
            place,
            request,
            policy,
            leased,
            retained,
            max_attempts,
            windowed,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Renew), Just(Step::BeginEffect), (0..3_u8).prop_map(Step::Checkpoint)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => (0..4_u8).prop_map(How::Complete),
        3 => any::<bool>().prop_map(|verified| How::Fail { verified }),
        1 => Just(How::Abandon),
    ]
}

fn move_clock() -> impl Strategy<Value = Micros> {
    prop_oneof![
        2 => Just(HOUR),
        2 => Just(HOUR - 1),
        2 => Just(1),
        2 => 1..HOUR,
        1 => Just(-1),
        1 => Just(-HOUR),
    ]
}

/// Commands that make sense in the state of `model`, likely ones more often.
pub fn commands(model: &Model) -> BoxedStrategy<Command> {
    let exact = model.is_exact();
    let mut choices: Vec<(u32, BoxedStrategy<Command>)> = vec![
        (1, place().prop_map(Command::Load).boxed()),
        (1, purge().boxed()),
        (1, (0..2_u8, any::<bool>()).prop_map(|(scope, everything)| Command::Erase { scope, everything }).boxed()),
        (1, (1..4_usize).prop_map(|page| Command::Stuck { page }).boxed()),
        (1, Just(Command::Stats).boxed()),
    ];
    if model.has_late_writes() {
        choices.push((3, Just(Command::LandLate).boxed()));
    }
    if exact {
        choices.push((3, move_clock().prop_map(Command::MoveClock).boxed()));
    }
    for (actor, state) in model.actors().iter().enumerate() {
        choices.extend(commands_of(actor, state, exact));
        if !matches!(state, Actor::Idle) {
            choices.push((1, Just(Command::Die { actor }).boxed()));
        }
    }
    prop::strategy::Union::new_weighted(choices).boxed()
}

fn commands_of(actor: usize, state: &Actor, exact: bool) -> Vec<(u32, BoxedStrategy<Command>)> {
    let ask_again = fault().prop_map(move |fault| Command::AskAgain { actor, fault });
    match state {
        Actor::Idle => {
            vec![(
                6,
                (terms(exact), fault()).prop_map(move |(terms, fault)| Command::Ask { actor, terms, fault }).boxed(),
            )]
        }
        Actor::Asking(_) => vec![(6, ask_again.boxed())],
        Actor::Deciding { .. } => {
            vec![(5, fault().prop_map(move |fault| Command::Take { actor, fault }).boxed()), (1, ask_again.boxed())]
        }
        Actor::Owning(held) if held.waits() => {
            vec![(6, fault().prop_map(move |fault| Command::Resolve { actor, fault }).boxed())]
        }
        Actor::Owning(_) => vec![
            (3, (step(), fault()).prop_map(move |(step, fault)| Command::Progress { actor, step, fault }).boxed()),
            (
                3,
                (how(), any::<bool>(), fault())
                    .prop_map(move |(how, floor, fault)| Command::Settle { actor, how, floor, fault })
                    .boxed(),
            ),
        ],
    }
}

fn purge() -> impl Strategy<Value = Command> {
    let unresolved_after = prop_oneof![2 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(HOUR))];
    let batch = prop_oneof![Just(1_usize), Just(2), Just(1_000)];
    (batch, unresolved_after).prop_map(|(batch, unresolved_after)| Command::Purge { batch, unresolved_after })
}
