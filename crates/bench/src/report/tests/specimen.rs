//! Believable reports for tests: everything that a real one can hold, and some that none should.
//!
//! The figures are those of a small machine, with repeats that wobble by a fixed pattern, so that golden files stay.

use std::collections::BTreeMap;

use crate::record::{
    Cell, Client, Endpoint, FORMAT, Machine, Published, Report, Row, Sample, Table,
};

const MIB: f64 = 1_048_576.0;
/// What repeats are multiplied with: a spread of about three percent.
const WOBBLE: [f64; 3] = [1.0, 0.97, 1.03];

/// What a client does in a row: speed in MiB/s or op/s, CPU s/GiB or µs/op, peak MiB, requests per GiB or per op.
type Figures = (&'static str, f64, f64, f64, f64);

/// A report with several suites, failures, missing clients, unavailable rows, disturbed and single runs.
pub(crate) fn report() -> Report {
    Report {
        format: FORMAT,
        started: "2026-03-14T09:26:53Z".to_owned(),
        machine: Machine {
            processor: "Intel(R) Xeon(R) Processor @ 2.70GHz".to_owned(),
            processors: 2,
            memory_bytes: 24 << 30,
            kernel: "6.18.5".to_owned(),
            system: "Debian GNU/Linux 12".to_owned(),
        },
        endpoint: Endpoint {
            description: "development server on this machine".to_owned(),
            same_machine: true,
        },
        clients: clients(),
        tables: vec![ossfs2(), ossfs1(), strmvol(), fss(), worktree()],
    }
}

/// A report without any run.
pub(crate) fn empty() -> Report {
    Report {
        clients: Vec::new(),
        tables: Vec::new(),
        ..report()
    }
}

/// Values that break careless writers: markup in names, nothing moved, one sample, huge and tiny numbers, no samples.
pub(crate) fn extremes() -> Report {
    let names = [
        "<script>alert(1)</script>",
        "a|b`c",
        "with \u{1b}[31mcolour\nand line",
        "&amp;\"'",
    ];
    let long = "a-client-with-a-name-that-is-far-longer-than-any-column-should-be-asked-to-hold";
    let client = |name: &str| Client {
        name: name.to_owned(),
        ..known("x")
    };
    let sample = Sample {
        seconds: 1e-9,
        bytes: u64::MAX,
        operations: 1,
        ..Sample::default()
    };
    let huge = Sample {
        client_cpu_seconds: 1e12,
        peak_resident_bytes: u64::MAX,
        ..sample
    };
    let failed = Sample {
        failure: Some("</td><b>&\n\u{7}|x".to_owned()),
        ..Sample::default()
    };
    let cell = |name: &str, samples: &[Sample]| Cell {
        client: name.to_owned(),
        samples: samples.to_vec(),
    };
    let cells = vec![
        cell(names[0], std::slice::from_ref(&huge)),
        cell(names[1], &[Sample::default()]),
        cell(names[2], &[failed.clone(), huge.clone(), failed]),
        cell(names[3], &[]),
        cell(
            long,
            &[Sample {
                seconds: 1e9,
                bytes: 1,
                ..Sample::default()
            }],
        ),
    ];
    let mut row = row("<i>row</i>", "as is", "a </p> & | description", cells);
    row.published = vec![published(
        "</svg>",
        &[("<b>", "1 <GB/s"), ("bandwidth", "3 GB/s")],
    )];
    row.commands = vec!["cat < a > b && echo `x` | tee \"y\" -- -->".to_owned()];
    let mut clients: Vec<Client> = names.iter().copied().chain([long]).map(client).collect();
    clients.push(Client {
        missing: Some("no <such> file".to_owned()),
        ..known("gone")
    });
    let rows = vec![row];
    Report {
        clients,
        tables: vec![Table {
            suite: "a&b".to_owned(),
            scale: 1e-9,
            rows,
        }],
        ..report()
    }
}

fn known(name: &str) -> Client {
    Client {
        name: name.to_owned(),
        version: Some(format!("{name} 1.2.3")),
        missing: None,
        command: format!("{name} bucket /mnt/{name} -o url=http://127.0.0.1:9000"),
    }
}

fn clients() -> Vec<Client> {
    let names = [
        "penstock", "ossfs2", "goofys", "mount-s3", "s3fs", "rclone", "geesefs",
    ];
    let mut clients: Vec<Client> = names.map(known).into();
    clients.push(Client {
        version: None,
        missing: Some("`juicefs` is not on PATH".to_owned()),
        ..known("juicefs")
    });
    clients
}

fn row(workload: &str, profile: &str, description: &str, cells: Vec<Cell>) -> Row {
    Row {
        workload: workload.to_owned(),
        description: description.to_owned(),
        commands: vec![format!(
            "fio --name={workload} --bs=1M --size=2G --group_reporting"
        )],
        profile: profile.to_owned(),
        unavailable: None,
        cells,
        published: Vec::new(),
    }
}

fn published(client: &str, figures: &[(&str, &str)]) -> Published {
    let figures = figures
        .iter()
        .map(|(column, text)| ((*column).to_owned(), (*text).to_owned()));
    Published {
        client: client.to_owned(),
        figures: figures.collect(),
        source: "ossfs 2.0 performance guide, 192 vCPU, 64 Gbit/s".to_owned(),
    }
}

fn requests(count: f64) -> BTreeMap<String, u64> {
    [
        ("GetObject".to_owned(), count as u64),
        ("HeadObject".to_owned(), 1),
    ]
    .into()
}

/// Three runs that move 2 GiB each.
fn moving(figures: &[Figures]) -> Vec<Cell> {
    let sample = |of: &Figures, wobble: f64| Sample {
        seconds: round(2048.0 / (of.1 * wobble)),
        bytes: 2 << 30,
        client_cpu_seconds: round(of.2 * 2.0 / wobble),
        workload_cpu_seconds: 0.4,
        peak_resident_bytes: (of.3 * wobble * MIB) as u64,
        requests: requests(of.4 * 2.0),
        server_sent_bytes: 2 << 30,
        verified: Some(true),
        ..Sample::default()
    };
    cells(figures, sample)
}

/// Three runs of 10,000 operations on `size` bytes each.
fn operating(size: u64, figures: &[Figures]) -> Vec<Cell> {
    let sample = |of: &Figures, wobble: f64| Sample {
        seconds: round(10_000.0 / (of.1 * wobble)),
        bytes: 10_000 * size,
        operations: 10_000,
        client_cpu_seconds: round(of.2 * 0.01),
        peak_resident_bytes: (of.3 * wobble * MIB) as u64,
        requests: requests(of.4 * 10_000.0),
        server_sent_bytes: 10_000 * size,
        latency_seconds: latencies(of.1 * wobble),
        verified: Some(true),
        ..Sample::default()
    };
    cells(figures, sample)
}

fn latencies(rate: f64) -> BTreeMap<String, f64> {
    let middle = 128.0 / rate;
    let points = [("50", 0.7), ("99", 4.0), ("99.9", 18.0)];
    points
        .map(|(name, factor)| (name.to_owned(), round(middle * factor)))
        .into()
}

fn cells(figures: &[Figures], sample: impl Fn(&Figures, f64) -> Sample) -> Vec<Cell> {
    let cell = |of: &Figures| Cell {
        client: of.0.to_owned(),
        samples: WOBBLE.iter().map(|wobble| sample(of, *wobble)).collect(),
    };
    figures.iter().map(cell).collect()
}

/// Few enough digits to survive any reader of JSON.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn fail(cells: &mut [Cell], client: &str, runs: usize, reason: &str) {
    let cell = cells.iter_mut().find(|cell| cell.client == client);
    for sample in &mut cell.expect("the client is in the row").samples[..runs] {
        *sample = Sample {
            failure: Some(reason.to_owned()),
            ..Sample::default()
        };
    }
}

fn ossfs2() -> Table {
    let write = |profile: &str| {
        let cells = moving(&[
            ("penstock", 1599.0, 0.59, 149.0, 33.0),
            ("ossfs2", 1264.0, 0.73, 192.0, 129.0),
            ("goofys", 328.0, 3.26, 92.0, 205.0),
            ("mount-s3", 1248.0, 0.80, 117.0, 129.0),
            ("s3fs", 566.0, 2.23, 18.0, 104.0),
            ("rclone", 172.0, 7.29, 106.0, 206.0),
            ("geesefs", 1011.0, 1.41, 611.0, 104.0),
        ]);
        row(
            "write-1",
            profile,
            "1 thread writes one file of 2 GiB in blocks of 1 MiB. Added to the source's command: fsync at the end",
            cells,
        )
    };
    let mut distant = write("far");
    take_far(&mut distant);
    let mut lan = write("lan");
    lan.published = vec![
        published(
            "ossfs 2.0",
            &[
                ("bandwidth", "2.2 GB/s"),
                ("CPU", "207 %"),
                ("peak memory", "2,167 MB"),
            ],
        ),
        published(
            "ossfs 1.0",
            &[
                ("bandwidth", "118 MB/s"),
                ("CPU", "5 %"),
                ("peak memory", "15 MB"),
            ],
        ),
        published(
            "goofys",
            &[
                ("bandwidth", "450 MB/s"),
                ("CPU", "250 %"),
                ("peak memory", "7.5 GB"),
            ],
        ),
    ];
    let rows = vec![
        lan,
        distant,
        read_one("lan"),
        read_one("far"),
        read_four(),
        small_files(),
    ];
    Table {
        suite: "ossfs2".to_owned(),
        scale: 0.02,
        rows,
    }
}

fn read_one(profile: &str) -> Row {
    let mut cells = moving(&[
        ("penstock", 1619.0, 0.51, 53.0, 131.0),
        ("ossfs2", 1218.0, 1.06, 1569.0, 256.0),
        ("goofys", 869.0, 0.98, 437.0, 52.0),
        ("mount-s3", 966.0, 1.39, 626.0, 129.0),
        ("s3fs", 719.0, 1.58, 17.0, 104.0),
        ("rclone", 338.0, 3.71, 98.0, 17.0),
        ("geesefs", 1601.0, 0.92, 720.0, 61.0),
    ]);
    cells[3].samples[1].disturbed = Some("0.8 cores of foreign load".to_owned());
    let mut row = row(
        "read-1",
        profile,
        "1 thread reads one file of 2 GiB in blocks of 1 MiB",
        cells,
    );
    take_far(&mut row);
    row.published = vec![
        published(
            "ossfs 2.0",
            &[
                ("bandwidth", "4.3 GB/s"),
                ("CPU", "610 %"),
                ("peak memory", "1,629 MB"),
            ],
        ),
        published(
            "ossfs 1.0",
            &[
                ("bandwidth", "1.0 GB/s"),
                ("CPU", "530 %"),
                ("peak memory", "260 MB"),
            ],
        ),
        published(
            "goofys",
            &[
                ("bandwidth", "1.3 GB/s"),
                ("CPU", "270 %"),
                ("peak memory", "976 MB"),
            ],
        ),
    ];
    row
}

/// What is left of each client's speed when the store is far.
fn take_far(row: &mut Row) {
    if row.profile != "far" {
        return;
    }
    let left = [0.99, 0.97, 0.9, 0.84, 0.69, 0.95, 0.72];
    for (cell, left) in row.cells.iter_mut().zip(left) {
        for sample in &mut cell.samples {
            sample.seconds = round(sample.seconds / left);
        }
    }
}

fn read_four() -> Row {
    let mut cells = moving(&[
        ("penstock", 1963.0, 0.53, 124.0, 131.0),
        ("ossfs2", 1190.0, 1.21, 4139.0, 256.0),
        ("goofys", 1161.0, 1.06, 1647.0, 52.0),
        ("mount-s3", 987.0, 1.30, 622.0, 129.0),
        ("s3fs", 697.0, 1.68, 24.0, 104.0),
        ("rclone", 689.0, 1.86, 222.0, 17.0),
    ]);
    fail(
        &mut cells,
        "goofys",
        3,
        "fio: pid 8123: read: Transport endpoint is not connected",
    );
    fail(&mut cells, "rclone", 1, "timed out after 300 s, killed");
    row(
        "read-4",
        "far",
        "4 threads read four files of 1 GiB for 30 s",
        cells,
    )
}

fn small_files() -> Row {
    let cells = operating(
        128 << 10,
        &[
            ("penstock", 7985.0, 139.0, 25.0, 1.0),
            ("ossfs2", 2416.0, 651.0, 55.0, 1.01),
            ("goofys", 3493.0, 383.0, 182.0, 1.0),
            ("mount-s3", 1394.0, 1283.0, 106.0, 7.05),
            ("s3fs", 1124.0, 983.0, 63.0, 3.0),
            ("rclone", 1296.0, 1260.0, 124.0, 2.0),
            ("geesefs", 4120.0, 402.0, 211.0, 1.0),
        ],
    );
    let mut row = row(
        "small-files",
        "lan",
        "128 threads read 10,000 files of 128 KiB",
        cells,
    );
    row.published = vec![published(
        "ossfs 2.0",
        &[("bandwidth", "1 GB/s"), ("CPU", "247 %")],
    )];
    row
}

fn ossfs1() -> Table {
    let list = |of: &Figures, wobble: f64| Sample {
        seconds: round(of.1 / wobble),
        client_cpu_seconds: of.2,
        peak_resident_bytes: (of.3 * MIB) as u64,
        requests: requests(of.4),
        ..Sample::default()
    };
    let figures = [
        ("penstock", 0.07, 0.02, 21.0, 11.0),
        ("s3fs", 1.17, 0.6, 31.0, 1010.0),
    ];
    let listing = row(
        "list",
        "lan",
        "ls -l of a directory of 1,000 files, cold",
        cells(&figures, list),
    );
    let mut concurrent = moving(&[
        ("penstock", 1710.0, 0.55, 212.0, 131.0),
        ("ossfs2", 1166.0, 1.2, 5120.0, 256.0),
        ("s3fs", 610.0, 1.7, 30.0, 104.0),
    ]);
    for sample in &mut concurrent[2].samples {
        sample.peak_disk_bytes = 2 << 30;
        sample.server_sent_bytes = 3 << 30;
    }
    for cell in &mut concurrent {
        cell.samples.truncate(1);
    }
    let concurrent = row(
        "sequential-10",
        "lan",
        "10 files of 200 MiB are read at once",
        concurrent,
    );
    Table {
        suite: "ossfs1".to_owned(),
        scale: 0.02,
        rows: vec![listing, concurrent],
    }
}

fn strmvol() -> Table {
    let at = |readers: u32, penstock: f64, geesefs: f64, goofys: f64| {
        let cells = operating(
            100_000,
            &[
                (
                    "penstock",
                    penstock,
                    120.0,
                    20.0 + f64::from(readers) / 8.0,
                    1.0,
                ),
                ("goofys", goofys, 390.0, 100.0 + f64::from(readers), 1.0),
                (
                    "geesefs",
                    geesefs,
                    400.0,
                    120.0 + f64::from(readers) * 2.0,
                    1.0,
                ),
                ("ossfs2", goofys * 0.8, 600.0, 60.0, 1.1),
            ],
        );
        let description = format!(
            "{} readers of random files of 100 KB",
            crate::report::units::thousands(readers.into())
        );
        row(
            &format!("random-read-{readers}"),
            "region",
            &description,
            cells,
        )
    };
    let mut rows = vec![
        at(4, 371.0, 352.0, 340.0),
        at(16, 1480.0, 1300.0, 1210.0),
        at(64, 5100.0, 3900.0, 2900.0),
        at(256, 7800.0, 4200.0, 3300.0),
        at(1024, 8050.0, 4100.0, 3100.0),
    ];
    rows[2].published = vec![published(
        "strmvol 2c4g",
        &[("throughput", "180.88 MB/s"), ("images", "1,577.12 img/s")],
    )];
    let mut index = row(
        "index-1m",
        "lan",
        "an index of 1 million objects is built",
        Vec::new(),
    );
    index.unavailable = Some("there is no stream volume yet".to_owned());
    rows.push(index);
    Table {
        suite: "strmvol".to_owned(),
        scale: 1.0,
        rows,
    }
}

fn fss() -> Table {
    let at = |targets: f64| {
        let cells = moving(&[(
            "penstock",
            1100.0 * targets.powf(0.8),
            0.6,
            90.0 * targets,
            40.0,
        )]);
        let plural = if targets > 1.0 { "s" } else { "" };
        let description = format!("{targets} target{plural}, random reads of 1 MiB");
        row(&format!("targets-{targets}"), "lan", &description, cells)
    };
    Table {
        suite: "fss".to_owned(),
        scale: 0.01,
        rows: vec![at(1.0), at(2.0), at(4.0)],
    }
}

/// A tree of 5,000 files: seconds until the program ended in place of the speed, until all was stored in place
/// of the processor time.
fn worktree() -> Table {
    let sample = |of: &Figures, wobble: f64| Sample {
        seconds: round(of.1 * wobble),
        stored_seconds: Some(round(of.2 * wobble)),
        bytes: 5_000 * 4_500,
        operations: 5_000,
        client_cpu_seconds: 0.5,
        peak_resident_bytes: (of.3 * MIB) as u64,
        requests: requests(of.4 * 5_000.0),
        server_received_bytes: 5_000 * 4_600,
        verified: Some(true),
        ..Sample::default()
    };
    let figures = [
        ("penstock", 1.9, 12.4, 61.0, 1.1),
        ("s3fs", 2950.0, 2950.0, 21.0, 7.3),
        ("rclone", 4.2, 291.0, 88.0, 3.0),
    ];
    let untar = row(
        "untar",
        "distant",
        "tar extracts 5,000 files of 4,500 bytes",
        cells(&figures, sample),
    );
    Table {
        suite: "worktree".to_owned(),
        scale: 1.0,
        rows: vec![untar],
    }
}
