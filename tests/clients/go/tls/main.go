// Connects to a URI and writes "ok", or the driver's error on one line.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func connect(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(ctx)
	collection := client.Database("go_tls").Collection("documents")
	id := bson.D{{Key: "_id", Value: 1}}
	document := bson.D{{Key: "text", Value: strings.Repeat("x", 100_000)}}
	if _, err := collection.ReplaceOne(ctx, id, document, options.Replace().SetUpsert(true)); err != nil {
		return err
	}
	var found struct{ Text string }
	if err := collection.FindOne(ctx, id).Decode(&found); err != nil {
		return err
	}
	if len(found.Text) != 100_000 {
		return fmt.Errorf("wrong document")
	}
	return nil
}

func main() {
	if err := connect(context.Background(), os.Args[1]); err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Println("ok")
}
