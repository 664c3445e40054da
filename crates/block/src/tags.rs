//! Whose a device is.
//!
//! Every device of a volume carries the volume's tag: a loop device as the name of its file, a
//! network block device as the name of what is behind it, a device of ublk as a number that the driver
//! keeps. The number of a device says nothing, because it is given to somebody else as soon as it is
//! free.

use std::{fs, time::Duration};

use penstock_base::clock;

use crate::{device::DeviceName, loops, ublk};

/// How long a device may take to be free after its last user closed it.
const CLEAR_DEADLINE: Duration = Duration::from_secs(10);

/// How often that is looked at.
const CLEAR_POLL: Duration = Duration::from_millis(5);

/// Whether the device carries the name `tag`. Asking lets go of one that nobody uses.
pub(crate) fn is_tagged(name: &DeviceName, tag: &str) -> bool {
    carried_tag(name).as_deref() == Some(tag)
}

fn carried_tag(name: &DeviceName) -> Option<String> {
    if ublk::is_ours(name) {
        return ublk::carried_tag(name);
    }
    match name.0.starts_with("nbd") {
        true => name.attribute("backend").ok(),
        false => loops::carried_tag(name),
    }
}

/// Waits until the device does not carry `tag` any more; false when somebody goes on using it.
pub(crate) async fn wait_until_clear(name: &DeviceName, tag: &str) -> bool {
    let looks = CLEAR_DEADLINE.as_millis() / CLEAR_POLL.as_millis();
    for _ in 0..looks {
        if !is_tagged(name, tag) {
            return true;
        }
        clock::sleep(CLEAR_POLL).await;
    }
    false
}

/// The names of the devices whose tag begins with `prefix`, such as a volume's whole tag.
pub fn tagged_devices(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let kinds = ["loop", "nbd"];
    let candidates = names.filter(|name| kinds.iter().any(|kind| name.starts_with(kind)));
    let ours = candidates.chain(ublk::names()).filter(|name| {
        let tag = carried_tag(&DeviceName(name.clone()));
        tag.is_some_and(|tag| tag.starts_with(prefix))
    });
    ours.collect()
}
