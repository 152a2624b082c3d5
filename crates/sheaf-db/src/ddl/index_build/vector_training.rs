//! Trains the lists of a vector index on a sample of the vectors that a collection has now.

use std::sync::Arc;

use sheaf_bson::Result;
use sheaf_query::vector::{Packed, Similarity, VectorField, VectorIndexDefinition, kernels, pack};

use crate::catalog::ReadView;
use crate::index::vector::lists::Lists;
use crate::index::vector::training::partition;
use crate::index::vector::value_at;
use crate::op_context::OpContext;
use crate::records::RecordCursor;
use crate::storage_error::IntoClientError;

/// Target number of vectors per list.
const LIST_MEMBERS: u64 = 128;
/// With fewer vectors, all stay in one list.
pub const VECTORS_MIN: u64 = 4096;
/// Vectors sampled per list, from which centroids are trained.
const SAMPLED_PER_LIST: u64 = 64;
/// Maximum memory of the sample of one field, in bytes.
const SAMPLE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of lists of a field.
const LISTS_MAX: u64 = 1 << 16;

/// Trains lists for each vector field of a definition on the vectors that a collection has now.
/// Errors: those of the storage engine, an interruption.
pub(crate) fn train(
    op: &OpContext,
    view: &ReadView,
    definition: &VectorIndexDefinition,
) -> Result<Arc<[Lists]>> {
    let fields = definition.vectors().iter();
    fields.map(|field| train_field(op, view, field)).collect()
}

fn train_field(op: &OpContext, view: &ReadView, field: &VectorField) -> Result<Lists> {
    let Some(collection) = &view.collection else {
        return Ok(Lists::one(field));
    };
    let records = view.snapshot.len(collection.table()).into_client_error()?;
    if records < VECTORS_MIN {
        return Ok(Lists::one(field));
    }
    let wanted = (records / LIST_MEMBERS).clamp(1, LISTS_MAX);
    let room = SAMPLE_BYTES_MAX / (4 * field.dimensions as u64);
    let stride = records.div_ceil((wanted * SAMPLED_PER_LIST).min(room).max(1));
    let mut sample: Vec<f32> = Vec::new();
    let (mut packed, mut floats) = (Vec::new(), Vec::new());
    let mut cursor = RecordCursor::new(&view.snapshot, collection)?;
    let mut on = cursor.first()?;
    let mut at = 0;
    while on {
        op.check_interrupt()?;
        if at % stride == 0 {
            packed.clear();
            let value = value_at(cursor.document()?, &field.path);
            if let Some(packing) = value.and_then(|v| pack(v, field.dimensions, &mut packed)) {
                let bytes = &packed[..];
                kernels::unpack(Packed { packing, bytes }, field.dimensions, &mut floats);
                sample.extend_from_slice(&floats);
            }
        }
        at += 1;
        on = cursor.next()?;
    }
    let sampled = (sample.len() / field.dimensions) as u64;
    let vectors = sampled * stride;
    if vectors < VECTORS_MIN {
        return Ok(Lists::one(field));
    }
    let lists = (vectors / LIST_MEMBERS).clamp(1, LISTS_MAX);
    // Parts end up at about two thirds of the maximum size.
    let members_max = (3 * sampled / (2 * lists)).max(2) as usize;
    let angular = field.similarity == Similarity::Cosine;
    let check = || op.check_interrupt();
    let parts = partition(&sample, field.dimensions, members_max, angular, &check)?;
    drop(sample);
    let centroids = parts.into_iter().flat_map(|part| part.centroid).collect();
    Lists::new(field, vectors, centroids, &check)
}
