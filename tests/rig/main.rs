//! The rig keeps its promises: servers start, do as they are told, and leave nothing behind.

mod postgres;
