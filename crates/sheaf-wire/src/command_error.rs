//! The shape of an error in a reply.
//!
//! ```text
//! {ok: 0.0, errmsg: "...", code: 11000, codeName: "DuplicateKey",
//!  keyPattern: {...}, keyValue: {...}, errorLabels: ["..."]}
//! ```

use sheaf_bson::DocBuilder;

use crate::Error;

/// Appends the fields of a failed command's reply.
pub fn append(error: &Error, reply: &mut DocBuilder) {
    reply.append("ok", 0.0);
    reply.append("errmsg", error.message());
    reply.append("code", error.code().0);
    reply.append("codeName", error.code_name().as_ref());
    if let Some(extra) = error.extra() {
        reply.extend(extra.as_raw());
    }
    append_labels(error, reply);
}

/// Appends `errorLabels`, if the error has any. They also accompany `ok: 1`, when a write failed
/// but the command did not.
pub fn append_labels(error: &Error, reply: &mut DocBuilder) {
    if error.labels().is_empty() {
        return;
    }
    reply.begin_array("errorLabels");
    for label in error.labels() {
        reply.push(label.as_ref());
    }
    reply.end();
}
