package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.MongoGridFSException;
import com.mongodb.client.gridfs.GridFSBucket;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.gridfs.GridFSDownloadStream;
import com.mongodb.client.gridfs.model.GridFSDownloadOptions;
import com.mongodb.client.gridfs.model.GridFSFile;
import com.mongodb.client.gridfs.model.GridFSUploadOptions;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import java.util.Random;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.Test;

/** GridFS: files as fs.files and fs.chunks, through the driver's bucket. */
class GridFsTest extends Suite {
    GridFSBucket bucket() {
        GridFSBucket b = GridFSBuckets.create(db, coll.getNamespace().getCollectionName());
        b.drop();
        return b;
    }

    static byte[] content(int n) {
        byte[] data = new byte[n];
        new Random(n).nextBytes(data);
        return data;
    }

    static ObjectId upload(GridFSBucket b, String name, byte[] data, GridFSUploadOptions options) {
        return b.uploadFromStream(name, new ByteArrayInputStream(data), options);
    }

    static byte[] download(GridFSBucket b, ObjectId id) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        b.downloadToStream(id, out);
        return out.toByteArray();
    }

    @Test
    void uploadAndDownload() {
        GridFSBucket b = bucket();
        for (int size : new int[] {0, 1, 261_119, 261_120, 261_121, 20 << 20}) {
            byte[] data = content(size);
            assertArrayEquals(data, download(b, upload(b, "f" + size, data, new GridFSUploadOptions())));
        }
    }

    @Test
    void ranges() throws Exception {
        GridFSBucket b = bucket();
        byte[] data = content(5_003);
        ObjectId id = upload(b, "f", data, new GridFSUploadOptions().chunkSizeBytes(1000));
        for (int start : new int[] {0, 995, 1000, 4_999, 5_002}) {
            try (GridFSDownloadStream stream = b.openDownloadStream(id)) {
                stream.skip(start);
                assertArrayEquals(Arrays.copyOfRange(data, start, data.length), stream.readAllBytes());
            }
        }
    }

    @Test
    void names() {
        GridFSBucket b = bucket();
        ObjectId one = upload(b, "r", "one".getBytes(), new GridFSUploadOptions().metadata(doc("{n: 1}")));
        ObjectId two = upload(b, "r", "two".getBytes(), new GridFSUploadOptions());
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        b.downloadToStream("r", out);
        b.downloadToStream("r", out, new GridFSDownloadOptions().revision(0));
        assertEquals("twoone", out.toString());
        b.rename(one, "other");
        GridFSFile found = b.find(eq("metadata.n", 1)).first();
        assertEquals("other", found.getFilename());
        b.delete(two);
        assertThrows(MongoGridFSException.class, () -> download(b, two));
        assertEquals(1L, db.getCollection(coll.getNamespace().getCollectionName() + ".chunks").countDocuments());
    }
}
