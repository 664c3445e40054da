//! What every [`Store`] must do, as tests that any backend can run.
//!
//! A contract is one async function that takes a store with nothing in it and panics when the
//! store breaks the contract. [`conformance_tests!`](crate::conformance_tests) makes one test of
//! each for a backend; [`all`] runs them one after the other, each under a prefix of its own,
//! for a bucket that is expensive to make.
//!
//! A contract that depends on a [capability](penstock_object::Capabilities) checks, where the store lacks
//! it, that the operation fails with `Unsupported`.
//!
//! A service that cannot keep all of them names those that it breaks:
//! `conformance_tests!(open, except empty_components_are_kept)`. A new contract then holds for every
//! backend until somebody says that it does not.

mod appending;
mod copying;
mod deleting;
mod keys;
mod listing;
mod multipart;
mod reading;
mod support;
mod symlinks;
mod upload_listing;
mod writing;

use std::sync::Arc;

pub use appending::*;
pub use copying::*;
pub use deleting::*;
pub use keys::*;
pub use listing::*;
pub use multipart::*;
pub use reading::*;
pub use symlinks::*;
pub use upload_listing::*;
pub use writing::*;

use penstock_object::{Store, layers::Prefixed};

/// Calls `$callback! { $argument => every, contract }`.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_contract {
    ($callback:ident, $argument:path) => {
        $crate::$callback! { $argument =>
            get_returns_what_was_put,
            what_is_missing_is_not_found,
            head_describes_the_object,
            a_sink_learns_what_it_receives,
            ranges_deliver_their_bytes_and_are_clipped,
            ranges_beyond_the_end_are_refused,
            reads_can_be_pinned_to_a_version,
            empty_objects_are_objects,
            a_full_sink_ends_the_read,
            sinks_may_hand_out_memory_in_pieces,
            metadata_comes_back,
            overwriting_replaces_everything,
            other_content_has_another_tag,
            a_write_can_insist_on_a_free_key,
            a_write_can_insist_on_a_version,
            concurrent_puts_leave_one_whole_body,
            a_dropped_put_is_whole_or_nothing,
            printable_keys_are_kept,
            dot_components_are_kept,
            empty_components_are_kept,
            long_keys_are_kept,
            a_key_may_be_a_prefix_of_others,
            keys_may_look_like_a_stores_own_names,
            copies_have_content_and_metadata,
            copies_can_be_described_anew,
            copies_can_be_pinned_to_a_version,
            a_copy_can_insist_on_a_free_key,
            deleting_is_idempotent,
            many_are_deleted_at_once,
            listings_are_in_byte_order,
            flat_listings_are_the_same,
            listings_describe_objects,
            listings_keep_to_the_prefix,
            delimited_listings_roll_up,
            listings_page_without_gaps,
            delimited_listings_page_without_gaps,
            listings_start_after_a_key,
            a_key_is_listed_next_to_its_prefix,
            a_listing_goes_on_when_its_last_key_is_gone,
            parts_become_an_object,
            parts_can_be_sent_again,
            parts_can_be_copied,
            nothing_is_visible_before_completion,
            completion_refuses_what_does_not_fit,
            small_parts_are_refused_where_the_store_says_so,
            completion_can_insist_on_a_free_key,
            aborting_is_idempotent,
            finished_uploads_are_gone,
            unfinished_uploads_are_listed,
            appends_grow_an_object,
            appends_check_the_position,
            only_appendable_objects_grow,
            links_lead_to_their_target,
            links_are_replaced_and_deleted_like_objects,
        }
    };
}

/// Makes one `#[tokio::test]` per contract.
///
/// The argument is the path of an async function without parameters that returns a [`Bed`]. A list
/// of contracts after `except` leaves those out; one after `=>` is all that is tested.
#[macro_export]
macro_rules! conformance_tests {
    ($open:path) => {
        $crate::__for_each_contract!(conformance_tests, $open);
    };
    ($open:path, except $($broken:ident),+ $(,)?) => {
        fn is_kept(contract: &str) -> bool {
            $(let _ = $crate::conformance::$broken;)+
            ![$(stringify!($broken)),+].contains(&contract)
        }

        $crate::__for_each_contract!(__tests_of_kept_contracts, $open);
    };
    ($open:path => $($contract:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $contract() {
                if let Some((_guard, store)) = $crate::conformance::Bed::made($open().await) {
                    $crate::conformance::$contract(&store).await;
                }
            }
        )+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of_kept_contracts {
    ($open:path => $($contract:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $contract() {
                if !is_kept(stringify!($contract)) {
                    return;
                }
                if let Some((_guard, store)) = $crate::conformance::Bed::made($open().await) {
                    $crate::conformance::$contract(&store).await;
                }
            }
        )+
    };
}

/// What a contract is tested on: a guard, which lives as long as the test, and a store with nothing
/// in it; `None` where the machine lacks what the backend needs.
pub trait Bed {
    /// What lives as long as the test.
    type Guard;

    /// Guard and store.
    fn made(self) -> Option<(Self::Guard, Arc<dyn Store>)>;
}

impl<G> Bed for (G, Arc<dyn Store>) {
    type Guard = G;

    fn made(self) -> Option<Self> {
        Some(self)
    }
}

impl<G> Bed for Option<(G, Arc<dyn Store>)> {
    type Guard = G;

    fn made(self) -> Self {
        self
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __run_contracts {
    ($store:path => $($contract:ident),+ $(,)?) => {
        $(
            let part = Prefixed::new(Arc::clone($store), concat!(stringify!($contract), "/"));
            let part: Arc<dyn Store> = Arc::new(part);
            $contract(&part).await;
        )+
    };
}

/// Runs every contract on `store`, each under a prefix named after it. Panics at the first that
/// is broken.
pub async fn all(store: &Arc<dyn Store>) {
    crate::__for_each_contract!(__run_contracts, store);
}
