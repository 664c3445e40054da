//! What the simulation takes for granted. The costs were measured (`scale measure`), the sites are assumptions.
//!
//! A trip that comes while its connection is busy costs less: nobody wakes up for it, and several are read and answered at
//! once. `key` is what the database pays for a key of the feed each time that it is told, `compared` each time
//! that a group is compared with it, which is behind the lock.

/// Microseconds and bytes of trips. See the module.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// CPU of the database: a group, each operation in it, that a group waits for the lock, and each that does.
    pub group: f64,
    pub operation: f64,
    pub contended: f64,
    pub waiter: f64,
    /// A trip that asks for news, and one for a page.
    pub news: f64,
    pub news_behind: f64,
    pub page: f64,
    pub page_behind: f64,
    pub key: f64,
    pub compared: f64,
    /// How long the log of the server takes to be flushed, behind the lock.
    pub flush: f64,
    /// CPU of a machine: a look at what is known, an operation that changes something, a group, a trip that reads.
    pub machine_look: f64,
    pub machine_operation: f64,
    pub machine_group: f64,
    /// What it does of a group while the database is at work, too.
    pub machine_beside: f64,
    pub machine_read: f64,
    pub machine_read_behind: f64,
    pub machine_key: f64,
    /// Of a trip, that nobody works and no wire carries: processes wake up.
    pub idle: f64,
    /// Bytes to the database and from it.
    pub group_up: f64,
    pub group_down: f64,
    pub operation_up: f64,
    pub operation_down: f64,
    pub news_up: f64,
    pub news_down: f64,
    pub page_up: f64,
    pub page_down: f64,
    pub key_down: f64,
}

impl Costs {
    /// PostgreSQL 15.
    pub const MEASURED: Self = Self {
        group: 330.0,
        operation: 19.0,
        contended: 40.0,
        waiter: 9.0,
        news: 52.0,
        news_behind: 29.0,
        page: 42.0,
        page_behind: 46.0,
        key: 0.45,
        compared: 1.6,
        flush: 110.0,
        machine_look: 1.0,
        machine_operation: 19.0,
        machine_group: 40.0,
        machine_beside: 100.0,
        machine_read: 28.0,
        machine_read_behind: 14.0,
        machine_key: 0.3,
        idle: 10.0,
        group_up: 625.0,
        group_down: 370.0,
        operation_up: 245.0,
        operation_down: 54.0,
        news_up: 87.0,
        news_down: 120.0,
        page_up: 100.0,
        page_down: 1870.0,
        key_down: 61.0,
    };
}

/// Where the database and the machines are.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    pub database_cores: usize,
    pub machine_cores: usize,
    /// The machines' programs run on the database's cores.
    pub is_one_computer: bool,
    /// Microseconds there and back, and bytes a second of the database's wire each way.
    pub round_trip: f64,
    pub bytes_per_second: f64,
    /// Connections of a machine that read.
    pub connections: usize,
}

impl Site {
    /// Where the costs were measured.
    pub const ONE_COMPUTER: Self = Self {
        database_cores: 2,
        machine_cores: 2,
        is_one_computer: true,
        round_trip: 0.0,
        bytes_per_second: 4e9,
        connections: 4,
    };

    /// A server with so many cores, and machines in the same building: 0.2 ms and 10 Gbit/s.
    pub const fn network(database_cores: usize) -> Self {
        Self {
            database_cores,
            machine_cores: 2,
            is_one_computer: false,
            round_trip: 200.0,
            bytes_per_second: 1.25e9,
            connections: 4,
        }
    }
}
