//! Under which conditions it was measured, and what the numbers mean: the end of the page.

use super::tables;
use crate::{
    record::Report,
    report::charts::{self, markup::Markup},
};

/// The conditions in one sentence, for the head of the page.
pub(super) fn sentence(report: &Report) -> String {
    let machine = &report.machine;
    let processors = match machine.processors {
        1 => "one processor".to_owned(),
        count => format!("{count} processors"),
    };
    let shared = if report.endpoint.same_machine {
        ", which shares the processors"
    } else {
        ""
    };
    let measured = report
        .clients
        .iter()
        .filter(|client| client.missing.is_none())
        .count();
    let clients = if measured == 1 {
        "One client".to_owned()
    } else {
        format!("{measured} clients")
    };
    format!(
        "{clients} did the same work on one machine with {processors} ({}) and {} of memory, against {}{shared}.",
        machine.processor,
        charts::memory(machine),
        report.endpoint.description
    )
}

/// Writes the end of the page.
pub(super) fn write(page: &mut Markup, report: &Report) {
    page.within("section", &[("class", &"conditions")], |page| {
        page.leaf("h2", &[], "Conditions and method");
        page.within("dl", &[], |page| {
            for (name, fact) in facts(report) {
                page.within("div", &[], |page| {
                    page.leaf("dt", &[], name);
                    page.leaf("dd", &[], &fact);
                });
            }
        });
        for paragraph in METHOD {
            page.leaf("p", &[("class", &"method")], paragraph);
        }
        clients(page, report);
    });
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    let place = if report.endpoint.same_machine {
        "on the same machine"
    } else {
        "on another machine"
    };
    vec![
        ("Begun", report.started.clone()),
        (
            "Processors",
            format!("{} × {}", machine.processors, machine.processor),
        ),
        ("Memory", charts::memory(machine)),
        (
            "System",
            format!("{}, Linux {}", machine.system, machine.kernel),
        ),
        (
            "Endpoint",
            format!("{}, {place}", report.endpoint.description),
        ),
    ]
}

const METHOD: [&str; 3] = [
    "Each figure is the median of the runs that did not fail; whiskers reach from the least to the greatest of them. ± is \
     how far off the median of another such series of runs may be: half of that range, and more where there were fewer than \
     five runs. Marks † lead to notes on runs that failed or were disturbed; an arrow stands for a value beyond the axis.",
    "A client is first where it differs from every other beyond the noise: ranges that do not overlap, and medians further \
     apart than both ± together and than 5 %, or 20 % where one of the two ran only once. Otherwise it is level.",
    "CPU is the processor time of the client's whole process tree. What is marked as measured elsewhere was published by \
     others, on other machines; where they print CPU as a share of a core, the cost per GiB follows from their bandwidth.",
];

fn clients(page: &mut Markup, report: &Report) {
    tables::scrolling(page, "Clients", |page| {
        page.within("thead", &[], |page| {
            page.within("tr", &[], |page| {
                for name in ["client", "version", "mounted by"] {
                    page.leaf("th", &[("scope", &"col"), ("class", &"prose")], name);
                }
            });
        });
        page.within("tbody", &[], |page| {
            for client in &report.clients {
                page.within("tr", &[], |page| {
                    page.leaf("th", &[("scope", &"row")], &client.name);
                    page.leaf(
                        "td",
                        &[("class", &"prose")],
                        client.version.as_deref().unwrap_or("–"),
                    );
                    page.within("td", &[("class", &"prose")], |page| match &client.missing {
                        Some(reason) => page.text(&format!("not measured: {reason}")),
                        None => page.leaf("code", &[], &client.command),
                    });
                });
            }
        });
    });
}
