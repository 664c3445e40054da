//! NFS mount targets: where they listen, and what clients may do.

use std::time::Duration;

use penstock_nfs::TargetType;

use crate::options::{Default, Group, Kind, Level, OptionSpec, Scope};

const SERVE: OptionSpec = OptionSpec {
    group: Group::Serve,
    scope: Scope::Serve,
    ..OptionSpec::COMMON
};

const ID: Kind = Kind::Count {
    min: 0,
    max: u32::MAX as u64 - 1,
};

pub(crate) static LISTEN: OptionSpec = OptionSpec {
    name: "listen",
    kind: Kind::Address,
    default: Default::Depends("none: it must be given"),
    help: "Where clients find the mount target; NFS and MOUNT are on the same port",
    ..SERVE
};

pub(crate) static PORTMAP: OptionSpec = OptionSpec {
    name: "portmap",
    aliases: &["rpcbind"],
    kind: Kind::Address,
    default: Default::Depends("none: clients are told the port when they mount"),
    help: "Where clients are told the ports, over TCP and UDP, such as 10.0.0.5:111",
    detail: "Clients look at port 111 of the address that they mount, which is root's. Locks of Linux and macOS need \
             it, and so does `showmount`. No rpcbind may listen there: stop that of the system, which takes the port at all \
             addresses.",
    ..SERVE
};

pub(crate) static EXPORT_PATH: OptionSpec = OptionSpec {
    name: "export",
    kind: Kind::Text("PATH"),
    default: Default::Is("/"),
    help: "Path that clients mount",
    detail: "Directories below can be mounted, too.",
    ..SERVE
};

pub(crate) static CLIENTS: OptionSpec = OptionSpec {
    name: "clients",
    kind: Kind::Text("CIDR,..."),
    default: Default::Depends("everybody who reaches the address"),
    help: "Addresses and networks whose clients are served; others are refused",
    detail: "As `10.0.0.0/8,192.168.7.3,fd00::/8`. Requests are neither encrypted nor signed: whoever \
             can send from such an address can say that he is any user.",
    ..SERVE
};

pub(crate) static SQUASH: OptionSpec = OptionSpec {
    name: "squash",
    kind: Kind::Choice(&["none", "root", "all"]),
    default: Default::Is("root"),
    help: "Which users of clients are taken for the anonymous one",
    detail: "With `root` that is root alone, so that root of a client is no root here.",
    ..SERVE
};

pub(crate) static ANONYMOUS_UID: OptionSpec = OptionSpec {
    name: "anonymous-uid",
    aliases: &["anonuid"],
    kind: ID,
    default: Default::Is("65534"),
    help: "User whom squashed users are taken for",
    ..SERVE
};

pub(crate) static ANONYMOUS_GID: OptionSpec = OptionSpec {
    name: "anonymous-gid",
    aliases: &["anongid"],
    kind: ID,
    default: Default::Is("65534"),
    help: "Group that squashed users are taken to be of",
    ..SERVE
};

pub(crate) static TARGET_TYPE: OptionSpec = OptionSpec {
    name: "target-type",
    kind: Kind::Choice(&TargetType::NAMES),
    default: Default::Is("unlimited"),
    help: "What the mount target delivers at most, shared evenly among its clients",
    detail: "`standard`: 1 Gb/s read, 0.5 Gb/s written and 5,000 operations a second; `hpmt-20`, `-40` and `-80`: \
             20, 40 and 80 times that. A GETATTR is one operation, a LOOKUP 2, a CREATE 4, a REMOVE 8, a READ of \
             32 KiB 2 and a WRITE 4, larger ones more.",
    ..SERVE
};

pub(crate) static GRACE_PERIOD: OptionSpec = OptionSpec {
    name: "grace-period",
    kind: Kind::Duration {
        min: Duration::ZERO,
        max: Duration::from_secs(600),
    },
    default: Default::Is("45s"),
    help: "How long clients may reclaim their locks after a start, while nobody gets others",
    detail: "There is none where no client held a lock when the target ended.",
    ..SERVE
};

pub(crate) static STATE_DIR: OptionSpec = OptionSpec {
    name: "state-dir",
    level: Level::Expert,
    kind: Kind::Path,
    default: Default::Depends(
        "/var/lib/penstock/nfs for root, ~/.local/share/penstock/nfs for others",
    ),
    help: "Directory with the key that file handles are made with, and the clients that hold locks",
    detail: "Handles are good as long as the key is there. Targets of one fileset need the same key. Clients are told \
             of a start, so that they reclaim their locks, by the target that finds them there.",
    ..SERVE
};

pub(crate) static PRIVILEGED_PORT: OptionSpec = OptionSpec {
    name: "privileged-port",
    level: Level::Expert,
    help: "Refuse requests from ports above 1023, which any user of a client may use",
    ..SERVE
};
