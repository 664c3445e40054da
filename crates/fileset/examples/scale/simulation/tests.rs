use super::*;
use crate::{costs::Costs, load::KEYS};

const TIME: Duration = Duration::from_secs(4);

/// Round numbers.
const COSTS: Costs = Costs {
    group: 400.0,
    operation: 20.0,
    contended: 0.0,
    waiter: 0.0,
    news: 100.0,
    news_behind: 100.0,
    page: 150.0,
    page_behind: 150.0,
    key: 0.0,
    compared: 0.0,
    flush: 300.0,
    machine_look: 1.0,
    machine_operation: 10.0,
    machine_group: 90.0,
    machine_beside: 50.0,
    machine_read: 30.0,
    machine_read_behind: 30.0,
    machine_key: 0.0,
    idle: 0.0,
    group_up: 0.0,
    group_down: 0.0,
    operation_up: 0.0,
    operation_down: 0.0,
    news_up: 0.0,
    news_down: 0.0,
    page_up: 0.0,
    page_down: 0.0,
    key_down: 0.0,
};

fn simulate(load: Load, machines: usize, costs: Costs, cores: usize) -> Found {
    let site = (costs, Site::network(cores));
    World::new(site, load, (machines, 0), 1).run(TIME)
}

fn is_near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= other.abs() * share
}

#[test]
fn a_seed_says_all() {
    let run = |seed| {
        let load = Load::MIXED.paced(Duration::from_millis(20));
        World::new((COSTS, Site::network(4)), load, (5, 0), seed).run(TIME)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// One caller alone waits for each part of a trip once.
#[test]
fn a_lone_create_takes_the_sum_of_its_parts() {
    let found = simulate(Load::only(Kind::Create, 1), 1, COSTS, 4);
    let parts = 10.0 + 90.0 + 200.0 + 400.0 + 20.0 + 300.0;
    assert_eq!(found.latencies["create"], (parts / 1e3, parts / 1e3));
    assert!(is_near(found.changes, 1e6 / parts, 0.01), "{found:?}");
    assert!(is_near(found.locked, 720.0 / parts, 0.01), "{found:?}");
}

#[test]
fn a_lone_open_takes_a_trip() {
    let found = simulate(Load::only(Kind::Open, 1), 1, COSTS, 4);
    let parts: f64 = 30.0 + 200.0 + 100.0 + 1.0;
    assert_eq!(found.latencies["open"], (parts / 1e3, parts / 1e3));
}

/// Groups of one operation: whoever comes, the lock lets one group go in its time.
#[test]
fn the_lock_is_a_ceiling() {
    for machines in [10, 40] {
        let found = simulate(Load::only(Kind::Create, 1), machines, COSTS, 64);
        assert!(is_near(found.groups, 1e6 / 720.0, 0.01), "{found:?}");
        assert!(found.locked > 0.99, "{found:?}");
        // Each waits for all others, and nobody has a turn.
        let (wait, (median, p99)) = (machines as f64 * 0.72, found.latencies["create"]);
        assert!(is_near(median, wait * 2_f64.ln(), 0.1), "{found:?}");
        assert!(is_near(p99, wait * 100_f64.ln(), 0.25), "{found:?}");
    }
}

/// More callers make larger groups: all callers of a machine are in one or the other of two.
#[test]
fn groups_grow_with_what_waits() {
    let few = simulate(Load::only(Kind::Create, 4), 8, COSTS, 64);
    let many = simulate(Load::only(Kind::Create, 64), 8, COSTS, 64);
    assert!(many.changes / many.groups > 8.0 * few.changes / few.groups);
    assert!(many.changes > 4.0 * few.changes);
}

/// Opens alone: the cores are the ceiling.
#[test]
fn the_cores_are_a_ceiling() {
    let found = simulate(Load::only(Kind::Open, 16), 20, COSTS, 2);
    assert!(
        is_near(found.operations, 2.0 * 1e6 / 100.0, 0.02),
        "{found:?}"
    );
    assert!(is_near(found.database, 2.0, 0.02), "{found:?}");
}

/// Each change is told to each machine: twice the machines with the same load of each are told four times as much.
#[test]
fn the_feed_is_quadratic() {
    let load = Load::only(Kind::Create, 4).paced(Duration::from_millis(100));
    let told = |machines: usize| {
        let found = simulate(load, machines, COSTS, 64);
        let expected = (found.changes * KEYS as f64 + found.groups) * machines as f64;
        assert!(is_near(found.told, expected, 0.02), "{found:?}");
        found.told
    };
    assert!(is_near(told(20), 4.0 * told(10), 0.1));
}

/// Little's law: callers are in an operation or pause.
#[test]
fn callers_are_somewhere() {
    let pause = Duration::from_millis(20);
    let load = Load::only(Kind::Open, 16).paced(pause);
    let found = simulate(load, 4, COSTS, 2);
    // Pauses are whole milliseconds, rounded up.
    let each = found.latencies["open"].0 / 1e3 + pause.as_secs_f64() + 0.0005;
    assert!(is_near(found.operations * each, 64.0, 0.03), "{found:?}");
}

#[test]
fn who_does_nothing_asks_each_40_ms() {
    let load = Load {
        callers: 0,
        ..Load::MIXED
    };
    let found = simulate(load, 10, COSTS, 2);
    let trip = 0.040 + 330e-6;
    let expected = 10.0 / trip * 100e-6;
    // Beats come on top.
    assert!(found.database >= expected * 0.99, "{found:?}");
    assert!(is_near(found.database, expected, 0.05), "{found:?}");
}

/// Groups are refused where machines change the same files, and nowhere else.
#[test]
fn groups_that_meet_are_refused() {
    let own = simulate(Load::only(Kind::Close, 8), 4, COSTS, 8);
    assert_eq!(own.refused, 0.0);
    let shared = simulate(Load::only(Kind::CloseShared, 8), 4, COSTS, 8);
    assert!(shared.refused > 0.1 * shared.groups, "{shared:?}");
    assert!(shared.changes > 100.0, "{shared:?}");
    let alone = simulate(Load::only(Kind::CloseShared, 8), 1, COSTS, 8);
    assert_eq!(alone.refused, 0.0);
}
