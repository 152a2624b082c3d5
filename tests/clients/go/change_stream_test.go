package clients

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// take returns the next n events and fails the test if there are fewer.
func take(t *testing.T, stream *mongo.ChangeStream, n int) []bson.M {
	t.Helper()
	events := []bson.M{}
	for range n {
		if !stream.Next(ctx) {
			t.Fatalf("no event: %v", stream.Err())
		}
		var event bson.M
		ok(t, stream.Decode(&event))
		events = append(events, event)
	}
	return events
}

func watch(t *testing.T, stream *mongo.ChangeStream, err error) *mongo.ChangeStream {
	t.Helper()
	ok(t, err)
	t.Cleanup(func() { stream.Close(ctx) })
	return stream
}

func TestChangesOfACollection(t *testing.T) {
	c := empty(t)
	s, err := c.Watch(ctx, mongo.Pipeline{})
	stream := watch(t, s, err)
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: 1}, {Key: "b", Value: 2}}))(t)
	must(c.UpdateOne(ctx, id(1), bson.D{{Key: "$set", Value: field("a", 5)}, {Key: "$unset", Value: field("b", "")}}))(t)
	must(c.ReplaceOne(ctx, id(1), field("c", 3)))(t)
	must(c.DeleteOne(ctx, id(1)))(t)
	events := take(t, stream, 4)
	for i, kind := range []string{"insert", "update", "replace", "delete"} {
		same(t, events[i]["operationType"], kind)
		same(t, events[i]["documentKey"], id(int32(1)))
		same(t, events[i]["ns"], bson.D{{Key: "db", Value: "go_suite"}, {Key: "coll", Value: c.Name()}})
	}
	same(t, events[0]["fullDocument"], bson.D{{Key: "_id", Value: int32(1)}, {Key: "a", Value: int32(1)}, {Key: "b", Value: int32(2)}})
	same(t, section(events[1], "updateDescription", "updatedFields"), field("a", int32(5)))
	same(t, section(events[1], "updateDescription", "removedFields"), bson.A{"b"})
	same(t, events[2]["fullDocument"], bson.D{{Key: "_id", Value: int32(1)}, {Key: "c", Value: int32(3)}})
	same(t, events[3]["fullDocument"], nil)
}

func TestChangesOfADatabaseAndOfTheDeployment(t *testing.T) {
	a, b := pair(t)
	mine := mongo.Pipeline{field("$match", field("ns.db", "go_suite"))}
	s, err := database().Watch(ctx, mongo.Pipeline{})
	near := watch(t, s, err)
	s, err = shared.Watch(ctx, mine)
	far := watch(t, s, err)
	must(a.InsertOne(ctx, id(1)))(t)
	must(b.InsertOne(ctx, id(2)))(t)
	for _, stream := range []*mongo.ChangeStream{near, far} {
		events := take(t, stream, 2)
		same(t, bson.A{section(events[0], "ns", "coll"), section(events[1], "ns", "coll")}, bson.A{a.Name(), b.Name()})
	}
}

func TestResumeAfterAnEvent(t *testing.T) {
	c := empty(t)
	s, err := c.Watch(ctx, mongo.Pipeline{})
	stream := watch(t, s, err)
	must(c.InsertMany(ctx, []any{id(0), id(1), id(2), id(3)}))(t)
	take(t, stream, 1)
	token := stream.ResumeToken()
	for _, o := range []*options.ChangeStreamOptionsBuilder{
		options.ChangeStream().SetResumeAfter(token), options.ChangeStream().SetStartAfter(token),
	} {
		s, err := c.Watch(ctx, mongo.Pipeline{}, o)
		for i, event := range take(t, watch(t, s, err), 3) {
			same(t, event["documentKey"], id(int32(i+1)))
		}
	}
	_, err = c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(field("_data", "no token")))
	refused(t, err, 9)
}

func TestDriverResumesWhenItsCursorIsLost(t *testing.T) {
	c := empty(t)
	s, err := c.Watch(ctx, mongo.Pipeline{})
	stream := watch(t, s, err)
	must(c.InsertOne(ctx, id(1)))(t)
	take(t, stream, 1)
	must(c.InsertOne(ctx, id(2)))(t)
	command(t, "go_suite", bson.D{{Key: "killCursors", Value: c.Name()}, {Key: "cursors", Value: bson.A{stream.ID()}}})
	same(t, take(t, stream, 1)[0]["documentKey"], id(int32(2)))
}

func TestChangesThroughAPipeline(t *testing.T) {
	c := empty(t)
	s, err := c.Watch(ctx, mongo.Pipeline{
		field("$match", bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument.n", Value: field("$gte", 2)}}),
		field("$set", field("twice", field("$multiply", bson.A{"$fullDocument.n", 2}))),
	})
	stream := watch(t, s, err)
	for n := range 4 {
		must(c.InsertOne(ctx, field("n", n)))(t)
	}
	events := take(t, stream, 2)
	same(t, bson.A{events[0]["twice"], events[1]["twice"]}, bson.A{int32(4), int32(6)})
}

func TestUpdateLookup(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: 1}}))(t)
	s, err := c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	stream := watch(t, s, err)
	must(c.UpdateOne(ctx, id(1), field("$set", field("b", 2))))(t)
	event := take(t, stream, 1)[0]
	same(t, section(event, "updateDescription", "updatedFields"), field("b", int32(2)))
	same(t, event["fullDocument"], bson.D{{Key: "_id", Value: int32(1)}, {Key: "a", Value: int32(1)}, {Key: "b", Value: int32(2)}})
}

func TestDropInvalidates(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, id(1)))(t)
	s, err := c.Watch(ctx, mongo.Pipeline{})
	stream := watch(t, s, err)
	ok(t, c.Drop(ctx))
	events := take(t, stream, 2)
	same(t, bson.A{events[0]["operationType"], events[1]["operationType"]}, bson.A{"drop", "invalidate"})
	same(t, stream.Next(ctx), false)
	ok(t, stream.Err())
}
