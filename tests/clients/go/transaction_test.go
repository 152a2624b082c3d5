package clients

import (
	"context"
	"os"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// sent records the commands that a client sends.
type sent struct {
	mu       sync.Mutex
	commands []bson.Raw
	names    []string
}

func (s *sent) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commands = append(s.commands, append(bson.Raw{}, e.Command...))
		s.names = append(s.names, e.CommandName)
	}}
}

// named returns the commands of this name, oldest first.
func (s *sent) named(name string) []bson.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []bson.Raw{}
	for i, command := range s.commands {
		if s.names[i] == name {
			found = append(found, command)
		}
	}
	return found
}

func id(v any) bson.D                 { return bson.D{{Key: "_id", Value: v}} }
func field(name string, v any) bson.D { return bson.D{{Key: name, Value: v}} }
func inc(n int) bson.D                { return field("$inc", field("n", n)) }

// pair returns two empty collections for this test.
func pair(t *testing.T) (a, b *mongo.Collection) {
	t.Helper()
	a = empty(t)
	b = database().Collection(a.Name() + "_b")
	ok(t, b.Drop(ctx))
	return a, b
}

// begin starts a transaction and returns the context of its statements.
func begin(t *testing.T, opts ...options.Lister[options.TransactionOptions]) (*mongo.Session, context.Context) {
	t.Helper()
	session := must(shared.StartSession())(t)
	t.Cleanup(func() { session.EndSession(ctx) })
	ok(t, session.StartTransaction(opts...))
	return session, mongo.NewSessionContext(ctx, session)
}

func value(t *testing.T, ctx context.Context, c *mongo.Collection, filter bson.D) int {
	t.Helper()
	var d struct{ N int }
	ok(t, c.FindOne(ctx, filter).Decode(&d))
	return d.N
}

func TestTransactionOverTwoCollectionsCommits(t *testing.T) {
	a, b := pair(t)
	must(a.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 5}}))(t)
	must(b.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}))(t)
	session, in := begin(t, options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority()))
	must(a.UpdateOne(in, id(1), inc(-5)))(t)
	must(b.BulkWrite(in, []mongo.WriteModel{
		mongo.NewUpdateOneModel().SetFilter(id(1)).SetUpdate(inc(5)),
		mongo.NewInsertOneModel().SetDocument(id(2)),
	}))(t)
	ok(t, b.FindOneAndUpdate(in, id(2), field("$set", field("n", 7))).Err())
	cursor, err := b.Aggregate(in, bson.A{field("$sort", field("n", 1))})
	same(t, ids(all(t, cursor, err)), bson.A{int32(1), int32(2)})
	same(t, []int{value(t, ctx, a, id(1)), value(t, ctx, b, id(1))}, []int{5, 0})
	same(t, must(b.CountDocuments(ctx, bson.D{}))(t), int64(1))
	ok(t, session.CommitTransaction(ctx))
	ok(t, session.CommitTransaction(ctx)) // repeated: the transaction stays committed
	same(t, []int{value(t, ctx, a, id(1)), value(t, ctx, b, id(1)), value(t, ctx, b, id(2))}, []int{0, 5, 7})
}

func TestTransactionAborts(t *testing.T) {
	a, b := pair(t)
	must(a.InsertOne(ctx, id(1)))(t)
	session, in := begin(t)
	must(a.DeleteOne(in, id(1)))(t)
	must(b.InsertOne(in, id(1)))(t)
	same(t, must(a.CountDocuments(in, bson.D{}))(t), int64(0))
	ok(t, session.AbortTransaction(ctx))
	same(t, must(a.CountDocuments(ctx, bson.D{}))(t), int64(1))
	same(t, must(b.CountDocuments(ctx, bson.D{}))(t), int64(0))
}

func TestFailedStatementEndsTheTransaction(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, id(1)))(t)
	session, in := begin(t)
	must(c.InsertOne(in, id(2)))(t)
	_, err := c.InsertOne(in, id(1))
	refused(t, err, 11000)
	same(t, refused(t, c.FindOne(in, bson.D{}).Err(), 251).HasErrorLabel("TransientTransactionError"), true)
	ok(t, session.AbortTransaction(ctx))
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(1))
}

func TestWithTransactionRetriesAfterAConflict(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}))(t)
	session := must(shared.StartSession())(t)
	defer session.EndSession(ctx)
	var failures []error
	answer, err := session.WithTransaction(ctx, func(in context.Context) (any, error) {
		n := value(t, in, c, id(1))
		if len(failures) == 0 { // another client, after this snapshot
			must(c.UpdateOne(ctx, id(1), inc(10)))(t)
		}
		if _, err := c.UpdateOne(in, id(1), field("$set", field("n", n+1))); err != nil {
			failures = append(failures, err)
			return nil, err
		}
		return "done", nil
	})
	ok(t, err)
	same(t, answer, "done")
	same(t, len(failures), 1)
	same(t, refused(t, failures[0], 112).HasErrorLabel("TransientTransactionError"), true)
	same(t, value(t, ctx, c, id(1)), 11)
}

func TestCursorOfSeveralBatchesInATransaction(t *testing.T) {
	c := numbers(t, 250)
	session, in := begin(t)
	cursor := must(c.Find(in, bson.D{}, options.Find().SetBatchSize(100).SetSort(id(1))))(t)
	same(t, cursor.Next(in), true)
	must(c.DeleteMany(ctx, bson.D{}))(t) // another client, after the snapshot
	n := int32(1)
	for cursor.Next(in) {
		same(t, cursor.Current.Lookup("_id").Int32(), n)
		n++
	}
	ok(t, cursor.Err())
	same(t, n, int32(250))
	ok(t, session.CommitTransaction(ctx))
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(0))
}

func TestCausallyConsistentSessions(t *testing.T) {
	name := empty(t).Name()
	s := &sent{}
	client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI")).SetMonitor(s.monitor())))(t)
	defer client.Disconnect(ctx)
	c := client.Database("go_suite").Collection(name)
	writer := must(client.StartSession(options.Session().SetCausalConsistency(true)))(t)
	defer writer.EndSession(ctx)
	reader := must(client.StartSession(options.Session().SetCausalConsistency(true)))(t)
	defer reader.EndSession(ctx)
	must(c.InsertOne(mongo.NewSessionContext(ctx, writer), id(1)))(t)
	written := *writer.OperationTime()
	ok(t, reader.AdvanceClusterTime(writer.ClusterTime()))
	ok(t, reader.AdvanceOperationTime(writer.OperationTime()))
	ok(t, c.FindOne(mongo.NewSessionContext(ctx, reader), id(1)).Err())
	time, increment := s.named("find")[0].Lookup("readConcern", "afterClusterTime").Timestamp()
	same(t, bson.Timestamp{T: time, I: increment}, written)
	same(t, reader.OperationTime().Before(written), false)
}

func TestSnapshotSessionReadsTheSameTwice(t *testing.T) {
	c := empty(t)
	must(c.InsertMany(ctx, []any{bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 1}}, bson.D{{Key: "_id", Value: 2}, {Key: "n", Value: 2}}}))(t)
	session := must(shared.StartSession(options.Session().SetSnapshot(true)))(t)
	defer session.EndSession(ctx)
	in := mongo.NewSessionContext(ctx, session)
	read := func() []bson.D {
		cursor, err := c.Find(in, bson.D{}, options.Find().SetSort(id(1)))
		return all(t, cursor, err)
	}
	first := read()
	must(c.UpdateOne(ctx, id(1), inc(99)))(t)
	must(c.InsertOne(ctx, id(3)))(t)
	same(t, read(), first)
	same(t, len(first), 2)
	cursor, err := c.Aggregate(in, bson.A{field("$group", bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: field("$sum", "$n")}})})
	same(t, all(t, cursor, err), []bson.D{{{Key: "_id", Value: nil}, {Key: "n", Value: int32(3)}}})
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(3))
}

// Retryable writes are for replica sets: the driver omits txnNumber.
func TestNoNumberIsSentToAStandalone(t *testing.T) {
	name := empty(t).Name()
	s := &sent{}
	client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI")).SetMonitor(s.monitor())))(t)
	defer client.Disconnect(ctx)
	must(client.Database("go_suite").Collection(name).InsertOne(ctx, id(1)))(t)
	insert := s.named("insert")[0]
	_, err := insert.LookupErr("txnNumber")
	same(t, err != nil, true)
	must(insert.LookupErr("lsid"))(t)
}
