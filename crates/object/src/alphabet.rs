//! Where between two keys the middle is, and which key lies how far behind another.
//!
//! Whoever lists many keys in parallel has to cut where he has not been.
//!
//! Keys are numbers here: the characters that were seen at a position, in order, are the digits
//! of that position. So the middle between `img/0001` and `img/0999` is at `img/04`, although half
//! of all texts between them begins with something that no key has. As long as few keys
//! were seen, relatives of a character are taken for digits, too: where there is a `3` there will
//! be a `7`.

use std::collections::BTreeSet;

/// Positions that have digits of their own; behind them all have the same.
const POSITIONS_MAX: usize = 256;

/// Digits that make up a number; more are beyond its precision.
const DIGITS_MAX: usize = 24;

/// Characters beyond ASCII that are kept for a position.
const OTHERS_MAX: usize = 1024;

/// Keys after which only characters that were seen are digits.
const SAMPLES_ENOUGH: u64 = 512;

/// Where the cut is tried, in this order, as a share of what lies between.
const FRACTIONS: [f64; 4] = [0.5, 0.75, 0.25, 0.95];

/// How far a cut may be from where it should be, as a share of what lies between: shorter texts are
/// nearer to where directories and numbers begin.
const TOLERANCE: f64 = 0.125;

/// What was learnt about the characters of keys.
#[derive(Debug, Default)]
pub struct Alphabet {
    positions: Vec<Digits>,
    anywhere: Digits,
    samples: u64,
}

/// The digits of a position.
#[derive(Debug, Default)]
struct Digits {
    ascii: u128,
    others: BTreeSet<char>,
    /// All in order.
    sorted: Vec<char>,
}

impl Alphabet {
    /// Takes notice of the characters of `key`.
    pub fn learn(&mut self, key: &str) {
        self.samples += 1;
        let eager = self.samples < SAMPLES_ENOUGH;
        for (position, character) in key.chars().enumerate() {
            self.anywhere.add(character, eager);
            if position < POSITIONS_MAX {
                if position == self.positions.len() {
                    self.positions.push(Digits::default());
                }
                self.positions[position].add(character, eager);
            }
        }
        if self.samples == SAMPLES_ENOUGH {
            let all = self.positions.iter_mut().chain([&mut self.anywhere]);
            all.for_each(|digits| digits.sort(false));
        }
    }

    /// A text after `after` and before `up_to`, or the end, near the middle of the keys there.
    pub fn between(&self, after: &str, up_to: Option<&str>) -> Option<String> {
        let shared = up_to.map_or("", |up_to| common_prefix(after, up_to));
        let skipped = shared.chars().count();
        let low = self.value(after, skipped);
        let high = up_to.map_or(1.0, |up_to| self.value(up_to, skipped));
        let tolerance = (high - low) * TOLERANCE;
        FRACTIONS.iter().find_map(|fraction| {
            let target = low + (high - low) * fraction;
            self.text(shared, (target, tolerance), |text| {
                text > after && up_to.is_none_or(|up_to| text < up_to)
            })
        })
    }

    /// How much of the space between `first` and `up_to` lies behind `last`, as a multiple of what lies
    /// before it.
    pub fn ahead(&self, first: &str, last: &str, up_to: Option<&str>) -> f64 {
        let skipped = up_to.map_or(0, |up_to| common_prefix(first, up_to).chars().count());
        let [first, last] = [first, last].map(|text| self.value(text, skipped));
        let end = up_to.map_or(1.0, |up_to| self.value(up_to, skipped));
        (end - last).max(0.0) / (last - first).max(f64::MIN_POSITIVE)
    }

    /// A text behind `from`, `times` as far from it as the second of `page` is from the first: where
    /// so many pages later might begin. None where no such text is known.
    ///
    /// What comes later has digits that were not seen where they will stand: counters go on. So the
    /// digits of a position are here those of all positions that share one with it.
    pub fn beyond(&self, page: (&str, &str), from: &str, times: f64) -> Option<String> {
        let most = common_prefix(common_prefix(page.0, page.1), from);
        let most = most.chars().count();
        let related = self.related();
        let starts = (0..=most).rev().take(DIGITS_MAX);
        starts
            .into_iter()
            .find_map(|skipped| related.at_distance(page, (from, skipped), times))
    }

    /// The same for texts whose first `skipped` characters stay.
    fn at_distance(
        &self,
        (first, last): (&str, &str),
        (from, skipped): (&str, usize),
        times: f64,
    ) -> Option<String> {
        let [low, high, value] = [first, last, from].map(|text| self.value(text, skipped));
        let distance = (high - low) * times;
        let target = value + distance;
        if distance <= 0.0 || target >= 1.0 {
            return None;
        }
        let kept = from.char_indices().nth(skipped);
        let kept = &from[..kept.map_or(from.len(), |(at, _)| at)];
        self.text(kept, (target, distance * TOLERANCE), |text| text > from)
    }

    fn related(&self) -> Self {
        let mut related = Self::default();
        for digits in &self.positions {
            let mut all = Digits::default();
            let share = |other: &&Digits| {
                other.ascii & digits.ascii != 0 || !other.others.is_disjoint(&digits.others)
            };
            for other in self.positions.iter().filter(share) {
                all.ascii |= other.ascii;
                all.others.extend(&other.others);
            }
            all.sort(false);
            related.positions.push(all);
        }
        related.anywhere.ascii = self.anywhere.ascii;
        related.anywhere.others.clone_from(&self.anywhere.others);
        related.anywhere.sort(false);
        related
    }

    fn digits(&self, position: usize) -> &[char] {
        match self.positions.get(position) {
            Some(digits) => &digits.sorted,
            None => &self.anywhere.sorted,
        }
    }

    /// The text behind its first `skipped` characters as a number from 0 to 1.
    fn value(&self, text: &str, skipped: usize) -> f64 {
        let (mut value, mut unit) = (0.0, 1.0);
        let characters = text.chars().enumerate().skip(skipped).take(DIGITS_MAX);
        for (position, character) in characters {
            let digits = self.digits(position);
            let digit = digits.partition_point(|other| *other < character);
            unit /= digits.len().max(1) as f64;
            value += digit as f64 * unit;
        }
        value
    }

    /// The shortest text that begins with `shared`, `fits` and is as near to `target` as is
    /// tolerated.
    fn text(
        &self,
        shared: &str,
        (target, tolerance): (f64, f64),
        fits: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let (mut text, mut rest, mut unit) = (shared.to_owned(), target, 1.0);
        let start = shared.chars().count();
        for position in start..start + DIGITS_MAX {
            let digits = self.digits(position);
            let scaled = rest * digits.len() as f64;
            let digit = (scaled as usize).min(digits.len().checked_sub(1)?);
            text.push(digits[digit]);
            rest = scaled - digit as f64;
            unit /= digits.len() as f64;
            if rest * unit <= tolerance && fits(&text) {
                return Some(text);
            }
        }
        fits(&text).then_some(text)
    }
}

impl Digits {
    fn add(&mut self, character: char, eager: bool) {
        let known = match ascii_bit(character) {
            Some(bit) => {
                let known = self.ascii & bit != 0;
                self.ascii |= bit;
                known
            }
            None if self.others.len() >= OTHERS_MAX => true,
            None => !self.others.insert(character),
        };
        if !known {
            self.sort(eager);
        }
    }

    /// Makes the digits anew, with relatives if `eager`.
    fn sort(&mut self, eager: bool) {
        let mut ascii = self.ascii;
        if eager {
            for relatives in ['0'..='9', 'a'..='z', 'A'..='Z'] {
                let family = relatives
                    .filter_map(ascii_bit)
                    .fold(0, |all, bit| all | bit);
                ascii |= if self.ascii & family == 0 { 0 } else { family };
            }
        }
        let plain = (0..128u8).filter(|code| ascii & (1 << code) != 0);
        self.sorted = plain.map(char::from).collect();
        self.sorted.extend(&self.others);
    }
}

fn ascii_bit(character: char) -> Option<u128> {
    character.is_ascii().then(|| 1 << (character as u32))
}

fn common_prefix<'a>(one: &'a str, other: &str) -> &'a str {
    let mut pairs = one.char_indices().zip(other.chars());
    let differs = pairs.find(|((_, a), b)| a != b);
    match differs {
        Some(((at, _), _)) => &one[..at],
        None => &one[..one.len().min(other.len())],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taught(keys: &[&str]) -> Alphabet {
        let mut alphabet = Alphabet::default();
        keys.iter().for_each(|key| alphabet.learn(key));
        alphabet
    }

    #[test]
    fn the_middle_is_among_digits_that_were_seen() {
        let alphabet = taught(&["img/0001", "img/0009"]);
        let middle = alphabet.between("img/0001", Some("img/0999"));
        assert_eq!(middle.as_deref(), Some("img/05"));
        let middle = alphabet.between("img/0989", Some("img/0999"));
        assert_eq!(
            middle.as_deref(),
            Some("img/0993"),
            "short of 0994 by rounding"
        );
    }

    #[test]
    fn there_may_be_no_middle() {
        let alphabet = taught(&["a", "b"]);
        assert_eq!(alphabet.between("b", Some("b")), None);
        assert_eq!(Alphabet::default().between("", None), None);
    }

    #[test]
    fn what_lies_pages_behind_is_reckoned_from_one_page() {
        let keys: Vec<String> = (0..1000).map(|number| format!("img/{number:06}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let alphabet = taught(&keys);
        let page = (keys[0], keys[999]);
        let behind = |from, times| alphabet.beyond(page, from, times);
        assert_eq!(behind("img/000999", 4.0).as_deref(), Some("img/0049"));
        assert_eq!(
            behind("img/009500", 4.0).as_deref(),
            Some("img/013"),
            "as near as is tolerated"
        );
        assert_eq!(
            behind("img/998000", 4.0),
            None,
            "no key is behind all digits"
        );
        assert_eq!(alphabet.beyond(("a", "a"), "a", 4.0), None);
    }

    #[test]
    fn digits_that_come_later_are_known_from_other_positions() {
        let keys: Vec<String> = (0..1000)
            .map(|number| format!("{number:04x}.bin"))
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let alphabet = taught(&keys);
        let behind = alphabet.beyond((keys[0], keys[999]), "9f00", 4.0);
        assert_eq!(behind.as_deref(), Some("ae"));
    }

    #[test]
    fn what_is_ahead_is_measured_in_what_is_behind() {
        let alphabet = taught(&["0000", "1000"]);
        let ahead = alphabet.ahead("0000", "2000", Some("8000"));
        assert!((2.9..3.1).contains(&ahead), "{ahead}");
        let ahead = alphabet.ahead("0000", "5000", None);
        assert!((0.9..1.1).contains(&ahead), "{ahead}");
    }

    proptest! {
        #[test]
        fn the_middle_lies_between(
            keys in prop::collection::vec("[a-c0-9/é漢]{1,12}", 1..20),
            one in "[a-c0-9/é漢]{0,12}",
            other in prop::option::of("[a-c0-9/é漢]{0,12}"),
        ) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let alphabet = taught(&keys);
            if let Some(middle) = alphabet.between(&one, other.as_deref()) {
                prop_assert!(middle > one);
                prop_assert!(other.is_none_or(|other| middle < other));
            }
        }

        #[test]
        fn long_common_beginnings_are_no_trouble(beginning in "[a-z/]{30,60}") {
            let (low, high) = (format!("{beginning}0001"), format!("{beginning}9999"));
            let alphabet = taught(&[&low, &high]);
            let middle = alphabet.between(&low, Some(&high)).expect("there is room");
            prop_assert!(middle.starts_with(&beginning));
        }
    }
}
