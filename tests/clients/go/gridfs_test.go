package clients

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func bucket(t *testing.T) *mongo.GridFSBucket {
	t.Helper()
	b := database().GridFSBucket(options.GridFSBucket().SetName(t.Name()))
	ok(t, b.Drop(ctx))
	return b
}

func content(n int) []byte {
	data := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(data)
	return data
}

func TestGridFSUploadAndDownload(t *testing.T) {
	b := bucket(t)
	for _, size := range []int{0, 1, 261_119, 261_120, 261_121, 1_000_000} {
		data := content(size)
		id := must(b.UploadFromStream(ctx, "f", bytes.NewReader(data)))(t)
		var got bytes.Buffer
		must(b.DownloadToStream(ctx, id, &got))(t)
		if !bytes.Equal(got.Bytes(), data) {
			t.Fatalf("%d bytes came back as %d others", size, got.Len())
		}
	}
}

func TestGridFSRange(t *testing.T) {
	b := bucket(t)
	data := content(5_003)
	id := must(b.UploadFromStream(ctx, "f", bytes.NewReader(data), options.GridFSUpload().SetChunkSizeBytes(1000)))(t)
	for _, start := range []int64{0, 995, 1000, 4_999, 5_002} {
		stream := must(b.OpenDownloadStream(ctx, id))(t)
		must(stream.Skip(start))(t)
		got := must(io.ReadAll(stream))(t)
		if !bytes.Equal(got, data[start:]) {
			t.Fatalf("from %d: %d bytes", start, len(got))
		}
		ok(t, stream.Close())
	}
}

func TestGridFSNames(t *testing.T) {
	b := bucket(t)
	one := must(b.UploadFromStream(ctx, "r", bytes.NewReader([]byte("one")), options.GridFSUpload().SetMetadata(bson.D{{Key: "n", Value: 1}})))(t)
	two := must(b.UploadFromStream(ctx, "r", bytes.NewReader([]byte("two"))))(t)
	named := func(name string, revision int32) string {
		var got bytes.Buffer
		must(b.DownloadToStreamByName(ctx, name, &got, options.GridFSName().SetRevision(revision)))(t)
		return got.String()
	}
	same(t, []string{named("r", -1), named("r", 0)}, []string{"two", "one"})
	ok(t, b.Rename(ctx, one, "other"))
	same(t, named("other", -1), "one")
	cursor, err := b.Find(ctx, bson.D{{Key: "metadata.n", Value: 1}})
	same(t, ids(all(t, cursor, err)), bson.A{one})
	ok(t, b.Delete(ctx, two))
	if _, err := b.OpenDownloadStream(ctx, two); !errors.Is(err, mongo.ErrFileNotFound) {
		t.Fatalf("a deleted file: %v", err)
	}
	same(t, must(b.GetChunksCollection().CountDocuments(ctx, bson.D{}))(t), int64(1))
}

func TestGridFSLargeFile(t *testing.T) {
	b := bucket(t)
	data := content(20 << 20)
	id := must(b.UploadFromStream(ctx, "large", bytes.NewReader(data)))(t)
	sum := sha256.New()
	must(b.DownloadToStream(ctx, id, sum))(t)
	want := sha256.Sum256(data)
	if !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Fatal("other bytes came back")
	}
}
