// orders loads an order book through the Go driver and reads its newest page.
//
// Each order has ten lines; one index on country, product and time (descending)
// must give the ten newest orders of a country that contain a product by reading
// ten keys and ten documents in one seek, however many orders there are.
//
//	orders -uri mongodb://127.0.0.1:27017/ -orders 1000000
//
// Prints what was measured, then the checks, and closes with "N passed, N failed".
// $SHEAF_PID and $SHEAF_DBPATH, when set, name the server's process and folder,
// for its memory and its size on disk.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

var (
	uri     = flag.String("uri", os.Getenv("SHEAF_URI"), "the server")
	orders  = flag.Int("orders", 1_000_000, "how many orders to load")
	clients = flag.Int("clients", 2, "how many connections load them")
	batch   = flag.Int("batch", 1000, "orders an insert command")
	ctx     = context.Background()
	passed  int
	failed  int
)

// The products and the country of the queries. Product 5 is among the rarest, 15 among the most frequent.
var (
	products = []int{5, 6, 8, 10, 12, 14, 15}
	country  = int32(1)
)

func check(name string, got, want any) {
	g, w := fmt.Sprint(got), fmt.Sprint(want)
	if g == w {
		passed++
		return
	}
	failed++
	fmt.Printf("FAIL %s: %s, expected %s\n", name, g, w)
}

// random is splitmix64: every order has a separate stream, so that any client
// can generate any order and the book is the same in every run.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
func (r *random) float() float64  { return float64(r.next()>>11) / (1 << 53) }
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// order generates the i-th order as BSON; the products are also returned.
func order(i int) (doc []byte, inCountry int32, lines [10]int) {
	r := random(i)
	r.next()
	inCountry = int32(r.below(10))
	at := time.Date(2025, 3, 9, 0, 0, 0, 0, time.UTC).UnixMilli() + int64(i)*1000 + int64(r.below(900))
	// A third are early customers of few products; the others choose among many.
	reach := float64(i)
	if i%3 != 0 {
		reach *= 160
	}
	start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 700))
	doc = bsoncore.AppendInt32Element(doc, "_id", int32(i))
	doc = bsoncore.AppendInt32Element(doc, "country_id", inCountry)
	doc = bsoncore.AppendDateTimeElement(doc, "created_at", at)
	array, doc := bsoncore.AppendArrayElementStart(doc, "order_details")
	for n := range lines {
		lines[n] = int(math.Log2(1 + reach*r.float()))
		var line int32
		line, doc = bsoncore.AppendDocumentElementStart(doc, string(rune('0'+n)))
		doc = bsoncore.AppendInt32Element(doc, "line", int32(n+1))
		doc = bsoncore.AppendInt32Element(doc, "product_id", int32(lines[n]))
		doc = bsoncore.AppendInt32Element(doc, "quantity", int32(r.below(100)))
		doc, _ = bsoncore.AppendDocumentEnd(doc, line)
	}
	doc, _ = bsoncore.AppendArrayEnd(doc, array)
	doc, _ = bsoncore.AppendDocumentEnd(doc, start)
	return doc, inCountry, lines
}

// load inserts every order and returns, per queried product, the ids of the country's orders, oldest first.
func load(c *mongo.Collection) map[int][]int {
	starts := make(chan int)
	found := make([]map[int][]int, *clients)
	var wg sync.WaitGroup
	for n := range *clients {
		found[n] = map[int][]int{}
		wg.Go(func() {
			for first := range starts {
				documents := make([]bson.Raw, 0, *batch)
				for i := first; i < min(first+*batch, *orders); i++ {
					doc, in, lines := order(i)
					documents = append(documents, doc)
					for _, p := range products {
						if in == country && slices.Contains(lines[:], p) {
							found[n][p] = append(found[n][p], i)
						}
					}
				}
				if _, err := c.InsertMany(ctx, documents); err != nil {
					log.Fatal("insert: ", err)
				}
			}
		})
	}
	shown := time.Now()
	for first := 0; first < *orders; first += *batch {
		starts <- first
		if time.Since(shown) > 5*time.Second {
			shown = time.Now()
			fmt.Printf("  %d of %d\n", first, *orders)
		}
	}
	close(starts)
	wg.Wait()
	all := map[int][]int{}
	for _, p := range products {
		for n := range found {
			all[p] = append(all[p], found[n][p]...)
		}
		slices.Sort(all[p])
	}
	return all
}

func main() {
	flag.Parse()
	client, err := mongo.Connect(options.Client().ApplyURI(*uri))
	if err != nil {
		log.Fatal(err)
	}
	c := client.Database("orders").Collection("orders")
	if err := c.Drop(ctx); err != nil {
		log.Fatal(err)
	}

	begin := time.Now()
	expected := load(c)
	took := time.Since(begin)
	fmt.Printf("loaded       %d orders in %.1f s: %.0f orders/s, %d connections, batches of %d\n", *orders, took.Seconds(), float64(*orders)/took.Seconds(), *clients, *batch)

	begin = time.Now()
	keys := bson.D{{Key: "country_id", Value: 1}, {Key: "order_details.product_id", Value: 1}, {Key: "created_at", Value: -1}}
	name, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys})
	if err != nil {
		log.Fatal(err)
	}
	took = time.Since(begin)
	fmt.Printf("indexed      %s in %.1f s: %.0f orders/s\n", name, took.Seconds(), float64(*orders)/took.Seconds())
	if n, err := c.CountDocuments(ctx, bson.D{}); err != nil {
		log.Fatal(err)
	} else {
		check("every order is there", n, *orders)
	}

	for _, p := range products {
		newest(c, p, expected[p])
	}
	latency(c)
	footprint(client)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func filter(product int) bson.D {
	return bson.D{
		{Key: "country_id", Value: country},
		{Key: "order_details", Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "product_id", Value: product}}}}},
	}
}

var newestFirst = bson.D{{Key: "created_at", Value: -1}}

func page(c *mongo.Collection, product int) []int {
	cursor, err := c.Find(ctx, filter(product), options.Find().SetSort(newestFirst).SetLimit(10))
	if err != nil {
		log.Fatal(err)
	}
	var found []struct {
		ID int `bson:"_id"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		log.Fatal(err)
	}
	ids := []int{}
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return ids
}

// newest checks the page of a product and the cost of reading it.
func newest(c *mongo.Collection, product int, all []int) {
	label := fmt.Sprintf("product %d", product)
	want := slices.Clone(all[max(0, len(all)-10):])
	slices.Reverse(want)
	check(label+": has a full page", len(want), 10)
	check(label+": the ten newest, in order", page(c, product), want)

	var plan bson.Raw
	command := bson.D{
		{Key: "explain", Value: bson.D{{Key: "find", Value: c.Name()}, {Key: "filter", Value: filter(product)}, {Key: "sort", Value: newestFirst}, {Key: "limit", Value: 10}}},
		{Key: "verbosity", Value: "executionStats"},
	}
	if err := c.Database().RunCommand(ctx, command).Decode(&plan); err != nil {
		log.Fatal(err)
	}
	stats := plan.Lookup("executionStats")
	number := func(path ...string) int64 {
		v, err := plan.LookupErr(path...)
		if err != nil {
			return -1
		}
		n, _ := v.AsInt64OK()
		return n
	}
	read := fmt.Sprintf("%d keys, %d documents, %d seeks",
		number("executionStats", "totalKeysExamined"), number("executionStats", "totalDocsExamined"),
		number("executionStats", "executionStages", "inputStage", "inputStage", "seeks"))
	check(label+": read", read, "10 keys, 10 documents, 1 seeks")
	check(label+": sorts", strings.Contains(stats.String(), `"SORT"`), false)
	fmt.Printf("%-12s %s\n", label, read)
}

// latency queries pages one after another, as one client would.
func latency(c *mongo.Collection) {
	const asks = 2000
	times := make([]time.Duration, asks)
	for i := range times {
		begin := time.Now()
		page(c, products[i%len(products)])
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	fmt.Printf("page of ten  median %d µs, 99th of a hundred %d µs, from the client\n", times[asks/2].Microseconds(), times[asks*99/100].Microseconds())
}

// footprint prints the server's memory and its size on disk.
func footprint(client *mongo.Client) {
	var stats struct{ Size, AvgObjSize, StorageSize, TotalIndexSize int64 }
	command := bson.D{{Key: "collStats", Value: "orders"}}
	if err := client.Database("orders").RunCommand(ctx, command).Decode(&stats); err != nil {
		log.Fatal(err)
	}
	mb := func(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
	fmt.Printf("data         %s of BSON, %d bytes an order\n", mb(stats.Size), stats.Size/int64(*orders))
	if pid := os.Getenv("SHEAF_PID"); pid != "" {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			log.Fatal(err)
		}
		for _, line := range strings.Split(string(status), "\n") {
			for field, what := range map[string]string{"VmRSS:": "now", "VmHWM:": "at most"} {
				var kb int64
				if rest, is := strings.CutPrefix(line, field); is {
					if _, err := fmt.Sscan(rest, &kb); err == nil {
						fmt.Printf("memory       %s resident %s\n", mb(kb*1024), what)
					}
				}
			}
		}
	}
	if folder := os.Getenv("SHEAF_DBPATH"); folder != "" {
		var allocated int64
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				allocated += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("disk         %s\n", mb(allocated))
	}
}
