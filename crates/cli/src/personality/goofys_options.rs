//! The options of goofys 0.24, in its own order.

use super::{ForeignOption, Meaning, convert::*, switch, value};
use crate::options::table;

use Meaning::{Granted, Is, Nothing, Own, Refused};

/// The table.
pub(super) static OPTIONS: &[ForeignOption] = &[
    // File system
    value("o", "", Own("mount words, or options with their dashes")),
    value("cache", "", Nothing("there is no cache on disk")),
    value("dir-mode", "0755", Is(&table::DIR_MODE, same)),
    value("file-mode", "0644", Is(&table::FILE_MODE, same)),
    value("uid", "", Is(&table::UID, same)),
    value("gid", "", Is(&table::GID, same)),
    // Store
    value("endpoint", "", Is(&table::ENDPOINT, nonempty)),
    value("region", "us-east-1", Is(&table::REGION, nonempty)),
    switch("requester-pays", "false", Is(&table::REQUESTER_PAYS, same)),
    value(
        "storage-class",
        "STANDARD",
        Nothing("the bucket's default class is used"),
    ),
    value("profile", "", Is(&table::PROFILE, nonempty)),
    switch(
        "use-content-type",
        "false",
        Nothing("the media type is left to the store"),
    ),
    switch(
        "sse",
        "false",
        Nothing("the bucket's default encryption is used"),
    ),
    value(
        "sse-kms",
        "",
        Refused("make the key the bucket's default encryption and leave the option out"),
    ),
    value(
        "sse-c",
        "",
        Refused("keys of your own are not supported; use the bucket's default encryption"),
    ),
    value(
        "acl",
        "",
        Nothing("new objects are private unless the bucket says otherwise"),
    ),
    switch(
        "subdomain",
        "false",
        Own("addressing: the bucket stands in the host name"),
    ),
    // Tuning
    switch(
        "cheap",
        "false",
        Granted("listings never ask for single objects"),
    ),
    switch(
        "no-implicit-dir",
        "false",
        Granted("directories need no objects of their own"),
    ),
    value(
        "stat-cache-ttl",
        "1m0s",
        Own("attr-timeout; the shorter of both caches"),
    ),
    value(
        "type-cache-ttl",
        "1m0s",
        Own("attr-timeout; the shorter of both caches"),
    ),
    value("http-timeout", "30s", Is(&table::REQUEST_TIMEOUT, same)),
    // Debugging
    switch("debug_fuse", "false", Is(&table::LOG_LEVEL, debug_log)),
    switch("debug_s3", "false", Is(&table::LOG_LEVEL, debug_log)),
    switch("f", "false", Is(&table::FOREGROUND, same)),
    switch("h", "", Own("print help")),
    switch("help", "", Own("print help")),
    switch("v", "", Own("print the version")),
    switch("version", "", Own("print the version")),
];
