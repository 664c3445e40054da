//! All that a database is asked for.
//!
//! | statement | when | trips |
//! |---|---|---|
//! | [`read`](Statements::read) and [`owner`](Statements::owner), in one trip | something is not known yet | 1 |
//! | [`write`](Statements::write) | operations that waited are made durable, all at once | 1 |
//! | [`claim`](Statements::claim), [`take`](Statements::take) | an engine opens, or takes over | 1 |
//! | [`create`](Statements::create), [`drop`](Statements::drop), [`is_there`](Statements::is_there) | a file system begins and ends | 1 |
//! | `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`, then `read` | all is looked at, as by a check | 1 for each page |
//! | `SET`, `SHOW` | a connection begins | 1 |
//!
//! What they are made of, and who has it as its documentation says; tried here with PostgreSQL alone:
//!
//! | | PostgreSQL 15 | CockroachDB | YugabyteDB |
//! |---|---|---|---|
//! | `bytea`, `bigint`, primary keys, schemas | yes | yes | yes |
//! | `WITH` of `UPDATE`, `DELETE` and `INSERT` with `RETURNING` | yes | yes | yes |
//! | `INSERT ... ON CONFLICT (key) DO UPDATE` | yes | yes | yes |
//! | `unnest` of two arrays in `FROM`, `= ANY(array)` | yes | yes | yes |
//! | keys in the order of their bytes, `LIMIT` | yes | yes | yes, with `PRIMARY KEY (key ASC)` |
//! | `enable_seqscan` and its like | yes | not needed: a refusal is passed over | yes |
//!
//! No locks are taken but that of one row, the owner's, and by no more than one statement at a time: so no two
//! transactions can wait for each other in a circle, and READ COMMITTED is enough. The row says at once who may write
//! (`epoch`) and what was written last (`sequence`): a statement that is sent again, since nobody knows what became of
//! it, finds the row as it left it and does nothing, and one that is on its way while another machine takes over is
//! refused.

/// The version of these tables.
pub(super) const VERSION: i32 = 1;

/// What is asked of the tables of one file system.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    schema: String,
}

impl Statements {
    /// Of this file system.
    pub(super) fn new(identity: u64) -> Self {
        Self {
            schema: format!("penstock_{identity:016x}"),
        }
    }

    /// Takes the first and the end of a range, and how many of its keys are wanted.
    pub(super) fn read(&self) -> String {
        let schema = &self.schema;
        format!(
            "SELECT key, value FROM {schema}.kv WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
        )
    }

    /// Who may write, and what was written last.
    pub(super) fn owner(&self) -> String {
        let schema = &self.schema;
        format!("SELECT epoch, sequence FROM {schema}.owner WHERE id = 1")
    }

    /// Takes the epoch, the number before and this one, the keys that go, and those that come with their values. Says
    /// whether that was done.
    pub(super) fn write(&self) -> String {
        let schema = &self.schema;
        format!(
            "WITH own AS (\
               UPDATE {schema}.owner SET sequence = $3 \
               WHERE id = 1 AND epoch = $1 AND sequence = $2 RETURNING id), \
             gone AS (\
               DELETE FROM {schema}.kv \
               WHERE key = ANY($4::bytea[]) AND EXISTS (SELECT 1 FROM own) RETURNING key), \
             come AS (\
               INSERT INTO {schema}.kv (key, value) \
               SELECT put.key, put.value FROM unnest($5::bytea[], $6::bytea[]) AS put (key, value) \
               WHERE EXISTS (SELECT 1 FROM own) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value RETURNING key) \
             SELECT EXISTS (SELECT 1 FROM own)"
        )
    }

    /// Begins an epoch, if this machine has the file system.
    pub(super) fn claim(&self) -> String {
        let schema = &self.schema;
        format!(
            "UPDATE {schema}.owner SET epoch = epoch + 1 WHERE id = 1 AND holder = $1 \
             RETURNING epoch, sequence, version"
        )
    }

    /// Begins an epoch, and this machine has the file system from now on.
    pub(super) fn take(&self) -> String {
        let schema = &self.schema;
        format!(
            "UPDATE {schema}.owner SET epoch = epoch + 1, holder = $1 WHERE id = 1 \
             RETURNING epoch, sequence, version"
        )
    }

    /// Makes the tables, which `holder` has.
    pub(super) fn create(&self, holder: i64) -> String {
        let schema = &self.schema;
        format!(
            "BEGIN; \
             CREATE SCHEMA {schema}; \
             CREATE TABLE {schema}.kv (key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (key)); \
             CREATE TABLE {schema}.owner (id integer PRIMARY KEY, version integer NOT NULL, \
               holder bigint NOT NULL, epoch bigint NOT NULL, sequence bigint NOT NULL); \
             INSERT INTO {schema}.owner (id, version, holder, epoch, sequence) \
               VALUES (1, {VERSION}, {holder}, 0, 0); \
             COMMIT"
        )
    }

    /// Says whether they are there.
    pub(super) fn is_there(&self) -> String {
        let schema = &self.schema;
        format!("SELECT 1 FROM information_schema.schemata WHERE schema_name = '{schema}'")
    }

    /// Removes them.
    pub(super) fn drop(&self) -> String {
        format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema)
    }
}
