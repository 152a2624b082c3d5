package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// member starts a replica set of one member, which ends with the test, and returns its address.
func member(t *testing.T) string {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	ok(t, err)
	ok(t, listener.Close())
	server := exec.Command(os.Getenv("SHEAF_BINARY"), "--dbpath", t.TempDir(), "--port", port, "--nounixsocket", "--replSet", "rs0")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ok(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	client, _ := connect(t, address, "directConnection=true")
	admin := client.Database("admin")
	config := bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: address}}}}}
	ok(t, admin.RunCommand(ctx, field("replSetInitiate", config)).Err())
	for tries := 0; ; tries++ {
		var hello struct{ IsWritablePrimary bool }
		ok(t, admin.RunCommand(ctx, field("hello", 1)).Decode(&hello))
		if hello.IsWritablePrimary {
			return address
		}
		if tries > 500 {
			t.Fatal("no primary")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// connect returns a client with the driver's defaults, and the commands it sends.
func connect(t *testing.T, address, how string) (*mongo.Client, *sent) {
	t.Helper()
	s := &sent{}
	uri := fmt.Sprintf("mongodb://%s/?%s", address, how)
	client := must(mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(s.monitor()).SetServerSelectionTimeout(20 * time.Second)))(t)
	t.Cleanup(func() { client.Disconnect(ctx) })
	return client, s
}

// lossy is a proxy between a driver and the server that drops the reply to the message with `marker`.
//
//	driver ──> message with the marker ──> server
//	driver ──X connection closed       <── reply
type lossy struct {
	mu     sync.Mutex
	marker []byte
	lost   int
	target string
}

func (l *lossy) lose(marker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marker = []byte(marker)
}

func (l *lossy) listen(t *testing.T) string {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.target)
			if err != nil {
				near.Close()
				continue
			}
			doomed := false // under mu
			go l.pump(near, far, func(data []byte) bool {
				if l.marker != nil && bytes.Contains(data, l.marker) {
					l.marker, doomed = nil, true
				}
				return true
			})
			go l.pump(far, near, func([]byte) bool {
				if doomed {
					l.lost++
				}
				return !doomed
			})
		}
	}()
	return listener.Addr().String()
}

// pump forwards what `pass` accepts, and then closes both ends.
func (l *lossy) pump(from io.ReadCloser, to io.WriteCloser, pass func([]byte) bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.mu.Lock()
			through := pass(buffer[:n])
			l.mu.Unlock()
			if !through {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func numbered(s *sent, name string) []bool {
	found := []bool{}
	for _, command := range s.named(name) {
		_, err := command.LookupErr("txnNumber")
		found = append(found, err == nil)
	}
	return found
}

func TestReplicaSetOfOneMember(t *testing.T) {
	address := member(t)
	for _, how := range []string{"directConnection=true", "replicaSet=rs0"} {
		t.Run("writes carry numbers "+how, func(t *testing.T) { writesCarryNumbers(t, address, how) })
	}
	t.Run("a lost reply causes no duplicate write", func(t *testing.T) { lostAnswers(t, address) })
	t.Run("a lost reply to a commit", func(t *testing.T) { lostCommit(t, address) })
}

func writesCarryNumbers(t *testing.T, address, how string) {
	client, s := connect(t, address, how)
	c := client.Database("go_set").Collection("numbered")
	ok(t, c.Drop(ctx))
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}))(t)
	must(c.InsertMany(ctx, []any{id(2), id(3)}))(t)
	must(c.UpdateOne(ctx, id(1), inc(1)))(t)
	ok(t, c.FindOneAndUpdate(ctx, id(1), inc(1)).Err())
	ok(t, c.FindOneAndReplace(ctx, id(2), field("r", 1)).Err())
	ok(t, c.FindOneAndDelete(ctx, id(3)).Err())
	must(c.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(id(4)),
		mongo.NewUpdateOneModel().SetFilter(id(4)).SetUpdate(field("$set", field("b", 1))),
		mongo.NewDeleteOneModel().SetFilter(id(2)),
	}))(t)
	// Writes to many documents are not retryable: the driver sends no number.
	must(c.UpdateMany(ctx, bson.D{}, field("$set", field("m", 1))))(t)
	cursor, err := c.Find(ctx, bson.D{}, options.Find().SetSort(id(1)))
	one := int32(1)
	same(t, all(t, cursor, err), []bson.D{
		{{Key: "_id", Value: one}, {Key: "n", Value: int32(2)}, {Key: "m", Value: one}},
		{{Key: "_id", Value: int32(4)}, {Key: "b", Value: one}, {Key: "m", Value: one}},
	})
	same(t, numbered(s, "insert"), []bool{true, true, true})
	same(t, numbered(s, "update"), []bool{true, true, false})
	same(t, numbered(s, "findAndModify"), []bool{true, true, true})
	same(t, numbered(s, "delete"), []bool{true})
}

func lostAnswers(t *testing.T, address string) {
	l := &lossy{target: address}
	client, s := connect(t, l.listen(t), "directConnection=true")
	c := client.Database("go_set").Collection("once")
	ok(t, c.Drop(ctx))
	l.lose("first-of-all")
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: "first-of-all"}, {Key: "n", Value: 0}}))(t)
	l.lose("inc-by-update")
	update := must(c.UpdateOne(ctx, id("first-of-all"), inc(1), options.UpdateOne().SetComment("inc-by-update")))(t)
	same(t, update.ModifiedCount, int64(1))
	l.lose("inc-by-modify")
	var before struct{ N int }
	ok(t, c.FindOneAndUpdate(ctx, id("first-of-all"), inc(1), options.FindOneAndUpdate().SetComment("inc-by-modify")).Decode(&before))
	same(t, before.N, 1)
	must(c.InsertMany(ctx, []any{field("k", 1), field("k", 1)}))(t)
	l.lose("one-of-two")
	same(t, must(c.DeleteOne(ctx, field("k", 1), options.DeleteOne().SetComment("one-of-two")))(t).DeletedCount, int64(1))
	same(t, value(t, ctx, c, id("first-of-all")), 2)
	same(t, must(c.CountDocuments(ctx, field("k", 1)))(t), int64(1))
	same(t, l.lost, 4)
	for _, name := range []string{"insert", "update", "findAndModify", "delete"} {
		found := s.named(name)
		if len(found) < 2 {
			t.Fatalf("%s was sent %d times", name, len(found))
		}
		same(t, found[0].Lookup("lsid"), found[1].Lookup("lsid"))
		same(t, found[0].Lookup("txnNumber"), found[1].Lookup("txnNumber"))
	}
}

func lostCommit(t *testing.T, address string) {
	l := &lossy{target: address}
	client, s := connect(t, l.listen(t), "directConnection=true")
	c := client.Database("go_set").Collection("committed")
	ok(t, c.Drop(ctx))
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}))(t)
	session := must(client.StartSession())(t)
	defer session.EndSession(ctx)
	_, err := session.WithTransaction(ctx, func(in context.Context) (any, error) {
		defer l.lose("commitTransaction")
		return c.UpdateOne(in, id(1), inc(1))
	})
	ok(t, err)
	same(t, value(t, ctx, c, id(1)), 1)
	same(t, l.lost, 1)
	same(t, len(s.named("commitTransaction")), 2)
}
