//! What clients may do: the rules of an export.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

use penstock_vfs::{Identity, Owner};

use crate::protocol::rpc::Credential;

/// The user and group of nobody.
pub const NOBODY: u32 = 65_534;
/// Ports that only root may use on a client, as far as that can be believed.
const PRIVILEGED_PORTS: u16 = 1024;

/// A network, or all addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// As an address of IPv6, whatever it is of.
    base: u128,
    bits: u32,
    shown: (IpAddr, u32),
}

impl Network {
    /// Whether an address is in it. That of IPv4 is the same whether or not it is written as one of IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mask = match self.bits {
            0 => 0,
            bits => u128::MAX << (u128::BITS - bits),
        };
        wide(address) & mask == self.base & mask
    }
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Some text is no address and no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a network such as 10.0.0.0/8")]
pub struct ParseNetworkError(String);

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseNetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = bits.unwrap_or(most);
        if length > most {
            return Err(wrong());
        }
        Ok(Self {
            base: wide(address),
            bits: Ipv6Addr::BITS - most + length,
            shown: (address, length),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, length) = self.shown;
        write!(f, "{address}/{length}")
    }
}

/// Which users of a client are nobody here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    /// None.
    None,
    /// Root.
    Root,
    /// All.
    All,
}

impl Squash {
    /// Each of them.
    pub const EACH: [Self; 3] = [Self::None, Self::Root, Self::All];

    /// The word for it in options and configuration files.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Root => "root",
            Self::All => "all",
        }
    }

    /// The one with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|squash| squash.word() == word)
    }
}

/// How callers may say who they are; other calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// By the numbers of a user and of groups (AUTH_SYS).
    System,
    /// Not at all (AUTH_NONE): they are nobody.
    None,
    /// Either way.
    Both,
}

impl Authentication {
    /// Whether calls of users are taken.
    pub(crate) fn takes_users(self) -> bool {
        self != Self::None
    }

    /// Whether calls without a user are taken.
    pub(crate) fn takes_nobody(self) -> bool {
        self != Self::System
    }
}

/// What some clients may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which clients; all where there are none.
    pub clients: Vec<Network>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who is taken for [`Rule::anonymous`].
    pub squash: Squash,
    /// Whom nobody is taken for.
    pub anonymous: Owner,
    /// Requests must come from a port below 1024.
    pub privileged_port: bool,
    /// How callers may say who they are.
    pub authentication: Authentication,
}

impl Default for Rule {
    /// Everybody may do all, but root of a client is nobody.
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            read_only: false,
            squash: Squash::Root,
            anonymous: Owner {
                uid: NOBODY,
                gid: NOBODY,
            },
            privileged_port: false,
            authentication: Authentication::Both,
        }
    }
}

impl Rule {
    fn is_for(&self, address: IpAddr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|clients| clients.contains(address))
    }

    /// On whose behalf a call runs; nothing where it is refused.
    pub(crate) fn identity(&self, credential: &Credential) -> Option<Identity> {
        let Owner { uid, gid } = self.anonymous;
        let nobody = || Identity::new(uid, gid, []);
        match credential {
            Credential::None => self.authentication.takes_nobody().then(nobody),
            Credential::System { .. } if !self.authentication.takes_users() => None,
            Credential::System { uid, gid, groups } => Some(match self.squash {
                Squash::All => nobody(),
                Squash::Root if *uid == 0 => nobody(),
                Squash::Root => self.without_root_group(*uid, *gid, groups),
                Squash::None => Identity::new(*uid, *gid, Arc::clone(groups)),
            }),
        }
    }

    /// A user without the group of root.
    fn without_root_group(&self, uid: u32, gid: u32, groups: &Arc<[u32]>) -> Identity {
        let squash = |gid: u32| if gid == 0 { self.anonymous.gid } else { gid };
        let groups = match groups.contains(&0) {
            true => groups.iter().map(|gid| squash(*gid)).collect(),
            false => Arc::clone(groups),
        };
        Identity::new(uid, squash(gid), groups)
    }
}

/// A file system under a path of some mount targets, with the rules for those who mount it, of which the first counts
/// that is for a client. Whom none is for is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// What clients mount, absolute. Directories below can be mounted, too.
    pub path: String,
    /// The name of the volume that is the file system.
    pub volume: String,
    /// The names of the mount targets that have it.
    pub targets: Vec<String>,
    /// The rules in their order.
    pub rules: Vec<Rule>,
}

impl Export {
    /// The names on its path.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        components(self.path.as_bytes())
    }

    /// Whether there is a rule for a client.
    pub(crate) fn is_known(&self, address: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.is_for(address))
    }

    /// The rule for a client.
    pub(crate) fn rule(&self, address: IpAddr, port: u16) -> Option<&Rule> {
        let rule = self.rules.iter().find(|rule| rule.is_for(address))?;
        (!rule.privileged_port || port < PRIVILEGED_PORTS).then_some(rule)
    }
}

/// The names on a path.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|component| !component.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn export(rules: Vec<Rule>) -> Export {
        Export {
            path: "/".to_owned(),
            volume: String::new(),
            targets: Vec::new(),
            rules,
        }
    }

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn networks_contain_addresses_of_both_families() {
        for (text, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.1", "10.2.0.1"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.1.0.0/16", "::ffff:10.1.0.9", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "::2"),
            ("10.0.0.0/9", "10.127.0.1", "10.128.0.1"),
        ] {
            let network = network(text);
            assert!(network.contains(address(inside)), "{text} {inside}");
            assert!(!network.contains(address(outside)), "{text} {outside}");
        }
        assert!(network("0.0.0.0/0").contains(address("1.2.3.4")));
        assert_eq!(network("10.1.2.3").to_string(), "10.1.2.3/32");
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "host",
            "::/129",
            "10.0.0.0/x",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_rule_for_a_client_counts() {
        let rule = |clients: &str, read_only| Rule {
            clients: vec![network(clients)],
            read_only,
            ..Rule::default()
        };
        let export = export(vec![rule("10.0.0.1", false), rule("10.0.0.0/8", true)]);
        let found = |text| Some(export.rule(address(text), 4000)?.read_only);
        assert_eq!(found("10.0.0.1"), Some(false));
        assert_eq!(found("10.9.9.9"), Some(true));
        assert_eq!(found("11.0.0.1"), None);
    }

    #[test]
    fn an_unprivileged_port_is_refused_where_a_rule_says_so() {
        let rule = Rule {
            privileged_port: true,
            ..Rule::default()
        };
        let export = export(vec![rule]);
        assert!(export.rule(address("10.0.0.1"), 1023).is_some());
        assert!(export.rule(address("10.0.0.1"), 1024).is_none());
    }

    #[test]
    fn squashed_users_are_nobody() {
        let caller = |uid, gid| Credential::System {
            uid,
            gid,
            groups: Arc::from([0, 7]),
        };
        let rule = |squash| Rule {
            squash,
            anonymous: Owner { uid: 9, gid: 8 },
            ..Rule::default()
        };
        let seen = |squash, uid, gid| {
            let seen = rule(squash).identity(&caller(uid, gid)).expect("a user");
            assert!(!seen.is_trusted);
            (seen.uid, seen.gid, seen.groups.to_vec())
        };
        assert_eq!(seen(Squash::None, 0, 0), (0, 0, vec![0, 7]));
        assert_eq!(seen(Squash::Root, 0, 5), (9, 8, vec![]));
        assert_eq!(seen(Squash::Root, 5, 0), (5, 8, vec![8, 7]));
        assert_eq!(seen(Squash::All, 5, 5), (9, 8, vec![]));
        let without = rule(Squash::None).identity(&Credential::None);
        assert_eq!(without.map(|by| by.uid), Some(9));
        let only = |authentication| Rule {
            authentication,
            ..rule(Squash::None)
        };
        let strict = only(Authentication::System);
        assert_eq!(strict.identity(&Credential::None), None);
        assert!(strict.identity(&caller(5, 5)).is_some());
        let nameless = only(Authentication::None);
        assert!(nameless.identity(&Credential::None).is_some());
        assert_eq!(nameless.identity(&caller(5, 5)), None);
    }

    /// Whether the first `bits` bits of two addresses of IPv4 are the same, one after the other.
    fn is_in(address: [u8; 4], (network, bits): ([u8; 4], u32)) -> bool {
        let bit = |of: [u8; 4], at: u32| of[at as usize / 8] >> (7 - at % 8) & 1;
        (0..bits).all(|at| bit(address, at) == bit(network, at))
    }

    /// Few addresses, so that networks meet them.
    fn few() -> impl Strategy<Value = [u8; 4]> {
        (0..2_u8, 0..2_u8, 0..3_u8, 0..4_u8).prop_map(|(a, b, c, d)| [10 + a, b, c, d])
    }

    proptest! {
        #[test]
        fn the_first_rule_whose_networks_have_a_client_is_the_one_of_a_naive_search(
            rules in prop::collection::vec(
                (prop::collection::vec((few(), 0..=32_u32), 0..3), any::<bool>()),
                0..6,
            ),
            address in few(),
            port in prop::sample::select(vec![1_u16, 1023, 1024, 40_000]),
        ) {
            let made = rules.iter().enumerate().map(|(index, (networks, privileged_port))| Rule {
                clients: networks
                    .iter()
                    .map(|(base, bits)| network(&format!("{}/{bits}", IpAddr::from(*base))))
                    .collect(),
                anonymous: Owner { uid: index as u32, gid: 0 },
                privileged_port: *privileged_port,
                ..Rule::default()
            });
            let export = export(made.collect());
            let mut expected = None;
            for (index, (networks, privileged_port)) in rules.iter().enumerate() {
                let is_for_all = networks.is_empty();
                if is_for_all || networks.iter().any(|network| is_in(address, *network)) {
                    expected = Some((index as u32, *privileged_port));
                    break;
                }
            }
            prop_assert_eq!(export.is_known(address.into()), expected.is_some());
            let allowed = expected.filter(|(_, privileged_port)| !privileged_port || port < 1024);
            let found = export.rule(address.into(), port).map(|rule| rule.anonymous.uid);
            prop_assert_eq!(found, allowed.map(|(index, _)| index));
        }
    }
}
