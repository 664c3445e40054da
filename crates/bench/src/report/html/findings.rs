//! What was found, before any chart: four numbers, then what the subject does not win.
//!
//! Nothing here is written by hand: it is the [`Ranking`], and losses have as much room as there are.

use crate::report::{
    charts::markup::Markup,
    figure::Aspect,
    ranking::{self, Ranking, Tally},
};

/// Writes the findings of `ranking`.
pub(super) fn write(page: &mut Markup, ranking: &Ranking<'_>) {
    page.within("div", &[("class", &"tiles")], |page| {
        for aspect in Aspect::ALL {
            let tally = ranking.tally(aspect);
            if tally.rows() > 0 {
                tile(page, aspect, &tally);
            }
        }
    });
    if let Some(caution) = ranking.caution() {
        page.leaf("p", &[("class", &"note")], caution);
    }
    page.within("div", &[("class", &"columns")], |page| {
        defeats(page, ranking);
        scoreboard(page, ranking);
    });
}

fn tile(page: &mut Markup, aspect: Aspect, tally: &Tally) {
    page.within("div", &[("class", &"tile")], |page| {
        page.leaf("p", &[("class", &"tile-name")], aspect.name());
        page.within("p", &[("class", &"tile-number")], |page| {
            page.text(&tally.first.to_string());
            page.leaf("small", &[], &format!(" of {} first", tally.rows()));
        });
        page.leaf("p", &[("class", &"faint")], &rest(tally));
    });
}

/// "1 level, 2 behind. Typically 1.5× the best of the others."
fn rest(tally: &Tally) -> String {
    let counts = [(tally.level, "level"), (tally.behind, "behind")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = counts
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if parts.is_empty() {
        parts.push("never behind".to_owned());
    }
    let typical = tally.median_advantage().map_or(String::new(), |advantage| {
        format!("; {} of the others", ranking::against_best(advantage))
    });
    format!("{}{typical}", parts.join(", "))
}

/// More losses than this are counted, not listed; the overview below has them all.
const LOSSES_MAX: usize = 12;

fn defeats(page: &mut Markup, ranking: &Ranking<'_>) {
    page.within("div", &[("class", &"defeats")], |page| {
        page.leaf("h2", &[], &format!("Where {} is behind", ranking.subject));
        let lines: Vec<String> = ranking
            .absences()
            .into_iter()
            .chain(ranking.loss_lines())
            .collect();
        if lines.is_empty() {
            page.leaf("p", &[], "In no row and no figure that was measured.");
        }
        page.within("ul", &[("class", &"plain")], |page| {
            for line in lines.iter().take(LOSSES_MAX) {
                page.within("li", &[], |page| {
                    let (row, loss) = line.split_once(": ").unwrap_or((line, ""));
                    page.leaf("b", &[], row);
                    page.text(&format!(" {loss}"));
                });
            }
            if lines.len() > LOSSES_MAX {
                let more = lines.len() - LOSSES_MAX;
                page.leaf(
                    "li",
                    &[],
                    &format!("and {more} more, all of them in the table below"),
                );
            }
        });
    });
}

fn scoreboard(page: &mut Markup, ranking: &Ranking<'_>) {
    page.within("div", &[], |page| {
        page.leaf("h2", &[], "First, or level with the first");
        page.within("div", &[("class", &"scroll")], |page| {
            page.within("table", &[("class", &"numbers score")], |page| {
                page.leaf(
                    "caption",
                    &[("class", &"hidden")],
                    "In how many rows each client is first or level with the first",
                );
                page.within("thead", &[], |page| {
                    page.within("tr", &[], |page| {
                        page.leaf("th", &[("scope", &"col")], "client");
                        for aspect in Aspect::ALL {
                            page.leaf("th", &[("scope", &"col")], aspect.name());
                        }
                    });
                });
                page.within("tbody", &[], |page| {
                    for (name, wins) in ranking.scoreboard() {
                        page.within("tr", &[], |page| {
                            page.leaf("th", &[("scope", &"row")], name);
                            for count in wins {
                                page.leaf(
                                    "td",
                                    &[("class", if count == 0 { &"faint" } else { &"" })],
                                    &count.to_string(),
                                );
                            }
                        });
                    }
                });
            });
        });
    });
}
