//! Rows without a mount: a command of the client itself is what is measured, such as the building
//! of an index.
//!
//! Client and workload are the same processes then. Their time is what the kernel credits us with
//! when they have ended, exact to the last one.

use crate::{
    catalog::ClientSpec,
    client::Kind,
    measure::Subjects,
    mount::{self, Area, Attempt},
    process::Task,
    record::Sample,
    sample::{Caches, Reason, Run, drop_caches},
    store::Store,
    suite::{self, Tool},
    template::variables,
};

impl Run<'_> {
    /// Runs the client's command of this name.
    pub(crate) fn own_command(&self, name: &str, sample: &mut Sample) -> Result<(), Reason> {
        let (Kind::Program(spec, _), Some(store)) = (&self.client.kind, self.store) else {
            return Err("there is no client to run".to_owned());
        };
        self.set_profile(false)?;
        let area = Area::make(self.session)?;
        let outcome = self
            .own_task(name, (spec, store), &area)
            .and_then(|task| self.measure_own(&task, &area, sample));
        area.remove();
        outcome.and(self.set_profile(false))
    }

    fn own_task(
        &self,
        name: &str,
        (spec, store): (&ClientSpec, &Store),
        area: &Area,
    ) -> Result<Task, Reason> {
        let command = spec.commands.get(name).map_or(&[][..], Vec::as_slice);
        let mut known = self.client.variables(self.session, store);
        known.extend(area.variables());
        let crowd = self.workload().crowds()?.pop();
        let path = crowd.map_or(String::new(), |crowd| crowd.prefix);
        known.extend(variables([
            ("crowd_bucket", suite::CROWD_BUCKET.to_owned()),
            ("crowd", path.trim_end_matches('/').to_owned()),
        ]));
        mount::write_files(spec, area, &known)?;
        let attempt = Attempt {
            client: self.client,
            session: self.session,
            store,
        };
        attempt.task(spec, area, &known, command)
    }

    fn measure_own(&self, task: &Task, area: &Area, sample: &mut Sample) -> Result<(), Reason> {
        drop_caches(Caches::All);
        self.load(task.arguments.first().map_or("", String::as_str));
        let subjects = Subjects {
            client: Some(task.mark.clone()),
            is_workload: true,
            kernel_workers: false,
            cache: area.cache.clone(),
            server: self.store.and_then(Store::pid),
        };
        self.set_profile(true)?;
        self.pass(subjects, task, sample)?;
        // How many there are is given; how long it takes is the figure.
        sample.operations = 0;
        if self.workload().row.tool == Tool::Objects {
            sample.verified = Some(true);
        }
        Ok(())
    }
}
