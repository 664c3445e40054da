//! What every volume must do, whatever it stores: tests that run over each of them, and over a POSIX file
//! system in memory ([`MemoryVolume`]) that has everything a volume may have.
//!
//! A volume's own tests say how to make one that holds given files ([`Ground`]) and write
//! `conformance_tests!(that_function);`. A test asks [`penstock_vfs::Features`] for what is optional and holds the
//! volume to its answer: a volume that says it has hard links must make them, and one that says it has none must
//! refuse them as documented.

#![allow(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "these are tests"
)]

mod bed;
mod memory;
pub mod reading;
pub mod writing;

pub use bed::{Bed, FILES, Ground};
pub use memory::MemoryVolume;

/// Calls `$callback!` with `$open` and every contract, by module.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_volume_contract {
    ($callback:ident, $open:ident) => {
        $crate::$callback! { $open, reading =>
            names_lead_to_files_and_directories,
            what_is_absent_is_not_found,
            names_below_a_file_are_refused,
            files_are_read_anywhere,
            a_file_ends_where_its_size_says,
            directories_list_every_name_once,
            a_listing_goes_on_from_any_position,
            a_listing_goes_on_after_a_name,
            a_listing_of_names_gives_no_references,
            a_directory_knows_the_one_above,
            a_file_that_is_held_once_more_is_forgotten_once_more,
            numbers_that_outlive_a_mount_lead_back,
            directories_and_files_are_opened_apart,
            what_a_trusted_caller_may_do_is_everything,
            statistics_add_up,
            what_cannot_be_changed_is_refused,
        }
        $crate::$callback! { $open, writing =>
            what_is_written_is_read,
            names_of_any_bytes_are_kept_or_refused,
            a_new_file_is_new_once,
            a_file_that_is_there_is_taken,
            files_are_written_where_the_features_say,
            what_is_appended_is_at_the_end,
            a_file_is_emptied,
            directories_are_made_and_removed,
            a_directory_with_entries_stays,
            files_and_directories_are_removed_apart,
            names_are_moved,
            a_move_replaces_or_refuses,
            numbers_of_removed_files_lead_nowhere,
            hard_links_are_made_or_refused,
            a_change_that_comes_too_late_is_refused,
            attributes_are_kept_or_passed_over,
            extended_attributes_are_kept_or_refused,
            holes_are_found_or_refused,
            ranges_are_copied_or_refused,
            what_is_changed_in_a_call_is_changed_once,
            what_is_shut_down_is_saved,
        }
    };
}

/// Makes a test of every contract. `$open` is an async function without parameters that returns a [`Ground`].
#[macro_export]
macro_rules! conformance_tests {
    ($open:ident) => {
        $crate::__for_each_volume_contract!(__tests_of_volume_contracts, $open);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of_volume_contracts {
    ($open:ident, $module:ident => $($contract:ident),+ $(,)?) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $contract() {
                    let bed = $crate::Bed::over(super::$open().await).await;
                    $crate::$module::$contract(&bed).await;
                }
            )+
        }
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn memory() -> Ground {
        let volume = Arc::new(MemoryVolume::new());
        Ground::writable(Arc::clone(&volume) as _).served_again_by(volume)
    }

    conformance_tests!(memory);
}
