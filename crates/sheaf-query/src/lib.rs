//! What a query means, and which plans could answer it; no storage.
