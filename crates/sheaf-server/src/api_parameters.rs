//! The parameters of the Stable API that a client declares: `apiVersion`, `apiStrict` and
//! `apiDeprecationErrors`.

use sheaf_bson::{Error, ErrorCode};

/// The parameters as given.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ApiParameters {
    /// `apiVersion: "1"` was given.
    pub version: bool,
    /// `apiStrict`.
    pub strict: Option<bool>,
    /// `apiDeprecationErrors`.
    pub deprecation_errors: Option<bool>,
}

impl ApiParameters {
    /// Takes `apiVersion`. Errors: `APIVersionError` for any but "1".
    pub fn take_version(&mut self, version: &str) -> Result<(), Error> {
        if version != "1" {
            return Err(Error::new(
                ErrorCode::API_VERSION_ERROR,
                format!("API version must be \"1\", not \"{version}\""),
            ));
        }
        self.version = true;
        Ok(())
    }

    /// Errors: 4886600 for a parameter without `apiVersion`.
    pub fn check(self) -> Result<(), Error> {
        if !self.version && (self.strict.is_some() || self.deprecation_errors.is_some()) {
            return Err(Error::new(
                ErrorCode(4_886_600),
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
            ));
        }
        Ok(())
    }

    /// Whether what does not belong to the version is refused.
    pub fn is_strict(self) -> bool {
        self.version && self.strict == Some(true)
    }

    /// Whether a getMore with these parameters may read a cursor opened with `opened`.
    /// Errors: `APIMismatchError`.
    pub fn check_cursor(self, opened: ApiParameters) -> Result<(), Error> {
        let of = |api: ApiParameters| {
            let (strict, errors) = (api.strict, api.deprecation_errors);
            (api.version, strict == Some(true), errors == Some(true))
        };
        if of(self) == of(opened) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::API_MISMATCH_ERROR,
            "API parameter mismatch: getMore must carry the API parameters of the command that \
             opened the cursor",
        ))
    }
}
