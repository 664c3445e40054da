//! The tables: what machines find on one database, from 1 to 100 of them.

use std::time::Duration;

use crate::{
    costs::{Costs, Site},
    load::Load,
    simulation::{Found, World},
};

const MACHINES: [usize; 6] = [1, 2, 4, 10, 30, 100];
const TIME: Duration = Duration::from_secs(30);
const SEED: u64 = 1;
/// What is used to this part of what there is is the ceiling.
const FULL: f64 = 0.9;
/// What a caller waits between two operations that people and builds do, on average.
const PAUSE: Duration = Duration::from_millis(160);

/// Tells all tables.
pub fn tell(costs: Costs) {
    let large = Load {
        callers: 64,
        ..Load::MIXED
    };
    for (what, load, all_cores) in [
        (
            "mixed, 16 callers that pause 160 ms",
            Load::MIXED.paced(PAUSE),
            vec![8],
        ),
        ("mixed, 16 callers", Load::MIXED, vec![2, 8]),
        ("mixed, 64 callers", large, vec![8]),
        ("reading, 16 callers", Load::READING, vec![2, 8, 32]),
    ] {
        for cores in all_cores {
            println!("\n{what} on each machine, {cores} cores\n");
            println!(
                "| machines | op/s | changes/s | of a group | refused | lock | cores at work | told keys/s | from the database MB/s | cores of a machine | create ms, p99 | open ms, p99 | ceiling |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
            for machines in MACHINES {
                let site = Site::network(cores);
                // One that had the keys alone would not wait for the database.
                let listeners = usize::from(machines == 1);
                let world = World::new((costs, site), load, (machines, listeners), SEED);
                row(machines, site, &world.run(TIME));
            }
        }
    }
}

/// What is used up, if something is.
fn ceiling(each: f64, site: Site, found: &Found) -> &'static str {
    let uses = [
        ("lock", found.locked),
        ("database CPU", found.database / site.database_cores as f64),
        ("wire", found.wire),
        ("machine CPU", each / site.machine_cores as f64),
    ];
    let most = uses.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let full = most.filter(|(_, share)| *share >= FULL);
    full.map_or("", |(name, _)| name)
}

fn row(machines: usize, site: Site, found: &Found) {
    let (create, open) = (found.latencies["create"], found.latencies["open"]);
    let each = found.machines / machines as f64;
    println!(
        "| {machines} | {:.0} | {:.0} | {:.1} | {:.1} % | {:.2} | {:.1} | {:.0} | {:.1} | {each:.2} | {:.1}, {:.1} | {:.1}, {:.1} | {} |",
        found.operations,
        found.changes,
        found.changes / (found.groups - found.refused),
        found.refused / found.groups * 100.0,
        found.locked,
        found.database,
        found.told,
        found.down / 1e6,
        create.0,
        create.1,
        open.0,
        open.1,
        ceiling(each, site, found),
    );
}
