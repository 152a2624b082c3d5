//! Commands that log in and out, and manage users and roles.

mod arguments;
pub mod authorize;
pub mod connection_status;
pub mod logout;
pub mod privileges;
pub mod roles;
pub mod roles_info;
pub mod sasl;
pub mod users;
pub mod users_info;
