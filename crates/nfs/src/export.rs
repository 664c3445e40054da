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
    /// Requests without a user (AUTH_NONE) are nobody's; else they are refused.
    pub without_user: bool,
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
            without_user: true,
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
            Credential::None => self.without_user.then(nobody),
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

/// A path with the rules for those who mount it, of which the first counts that is for a client. Whom none is for is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// What clients mount, absolute. Directories below can be mounted, too.
    pub path: String,
    /// The rules in their order.
    pub rules: Vec<Rule>,
}

impl Export {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let export = Export {
            path: "/".to_owned(),
            rules: vec![rule("10.0.0.1", false), rule("10.0.0.0/8", true)],
        };
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
        let export = Export {
            path: "/".to_owned(),
            rules: vec![rule],
        };
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
        let strict = Rule {
            without_user: false,
            ..rule(Squash::None)
        };
        assert_eq!(strict.identity(&Credential::None), None);
    }
}
