// Orders in a document database: an index on an array, pages, a transaction, a change stream.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type Line struct {
	Product  int
	Quantity int
}

type Order struct {
	ID      int `bson:"_id"`
	Country string
	At      time.Time
	Lines   []Line
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	uri := os.Getenv("SHEAF_URI")
	if uri == "" {
		uri = "mongodb://127.0.0.1:27017/"
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(ctx)
	db := client.Database("examples")
	if err := db.Drop(ctx); err != nil {
		return err
	}
	steps := []func(context.Context, *mongo.Database) error{insert, page, sales, watch}
	for _, step := range steps {
		if err := step(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// order has two lines, or the given ones.
func order(number int, lines ...Line) Order {
	if len(lines) == 0 {
		lines = []Line{{number % 7, 1}, {(number + 3) % 7, 2}}
	}
	country := []string{"CH", "FR", "IT"}[number%3]
	return Order{number, country, time.Date(2026, 1, 1+number, 0, 0, 0, 0, time.UTC), lines}
}

func insert(ctx context.Context, db *mongo.Database) error {
	orders := []Order{}
	for number := 1; number <= 60; number++ {
		orders = append(orders, order(number))
	}
	result, err := db.Collection("orders").InsertMany(ctx, orders)
	if err != nil {
		return err
	}
	fmt.Println("inserted", len(result.InsertedIDs), "orders")

	// One index serves the filter on the array's elements and the order of the results.
	keys := bson.D{{Key: "country", Value: 1}, {Key: "lines.product", Value: 1}, {Key: "at", Value: -1}}
	name, err := db.Collection("orders").Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys})
	if err != nil {
		return err
	}
	fmt.Println("index", name)
	return nil
}

// page begins each page where the last one ended: no page costs more than the first.
func page(ctx context.Context, db *mongo.Database) error {
	query := bson.M{"country": "CH", "lines.product": 5}
	newest := options.Find().SetSort(bson.D{{Key: "at", Value: -1}}).SetLimit(4)
	for number := 1; ; number++ {
		cursor, err := db.Collection("orders").Find(ctx, query, newest)
		if err != nil {
			return err
		}
		var found []Order
		if err := cursor.All(ctx, &found); err != nil || len(found) == 0 {
			return err
		}
		fmt.Printf("page %d:", number)
		for _, document := range found {
			fmt.Print(" ", document.ID)
		}
		fmt.Println()
		query["at"] = bson.M{"$lt": found[len(found)-1].At}
	}
}

var errOutOfStock = errors.New("out of stock")

// sell inserts the order and takes from the stock, both or neither.
func sell(ctx context.Context, db *mongo.Database, number int, line Line) error {
	if _, err := db.Collection("orders").InsertOne(ctx, order(number, line)); err != nil {
		return err
	}
	enough := bson.M{"_id": line.Product, "left": bson.M{"$gte": line.Quantity}}
	take := bson.M{"$inc": bson.M{"left": -line.Quantity}}
	taken, err := db.Collection("stock").UpdateOne(ctx, enough, take)
	if err == nil && taken.MatchedCount == 0 {
		return errOutOfStock // ends the transaction: the order is not inserted either
	}
	return err
}

func sales(ctx context.Context, db *mongo.Database) error {
	stock := db.Collection("stock")
	if _, err := stock.InsertOne(ctx, bson.M{"_id": 5, "left": 10}); err != nil {
		return err
	}
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	for number, quantity := range []int{3, 9} {
		if err := sale(ctx, db, session, 61+number, quantity); err != nil {
			return err
		}
	}
	count, err := db.Collection("orders").CountDocuments(ctx, bson.M{})
	fmt.Println("orders:", count)
	return err
}

func sale(ctx context.Context, db *mongo.Database, session *mongo.Session, number, quantity int) error {
	outcome := "sold"
	// Runs it again when it meets another transaction's write.
	_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return nil, sell(ctx, db, number, Line{5, quantity})
	})
	if errors.Is(err, errOutOfStock) {
		outcome = "cannot sell"
	} else if err != nil {
		return err
	}
	var document struct{ Left int }
	if err := db.Collection("stock").FindOne(ctx, bson.M{"_id": 5}).Decode(&document); err != nil {
		return err
	}
	fmt.Printf("%s %d of product 5, %d left\n", outcome, quantity, document.Left)
	return nil
}

func watch(ctx context.Context, db *mongo.Database) error {
	changes, err := db.Collection("orders").Watch(ctx, mongo.Pipeline{})
	if err != nil {
		return err
	}
	defer changes.Close(ctx)
	if _, err := db.Collection("orders").InsertOne(ctx, order(62)); err != nil {
		return err
	}
	if !changes.Next(ctx) {
		return changes.Err()
	}
	var change struct {
		OperationType string `bson:"operationType"`
		DocumentKey   struct {
			ID int `bson:"_id"`
		} `bson:"documentKey"`
	}
	if err := changes.Decode(&change); err != nil {
		return err
	}
	fmt.Println("change:", change.OperationType, change.DocumentKey.ID)
	return nil
}
