//! What `stat` shows.
