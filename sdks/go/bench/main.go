// What a lock costs one Go program: this library, etcd's client and redsync, in one run on one machine.
// ../../bench/run.sh runs it, and says what it compares.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	holdfast "holdfast/sdks/go"
)

// release gives a lock back.
type release func() error

// service is how a lock is taken.
type service struct {
	name    string
	acquire func(name string) (release, error)
}

// turn is in microseconds.
type turn struct{ acquire, release, both, both99 float64 }

func main() {
	ctx := context.Background()
	turns, operations := number("TURNS", 7), number("OPERATIONS", 400)
	services := services(ctx)
	for _, it := range services {
		measure(it, 50)
	}
	measured := make([][]turn, len(services))
	for number := range turns {
		for at := range services {
			// Another one begins each time.
			at = (at + number) % len(services)
			measured[at] = append(measured[at], measure(services[at], operations))
		}
	}
	fmt.Printf("%s; %d turns of %d operations; p50 and p99 in microseconds\n\n", runtime.Version(), turns, operations)
	fmt.Println("| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |")
	fmt.Println("|---|---|---|---|---|---|")
	ofEtcd := middle(measured[2], func(it turn) float64 { return it.both })
	for at, it := range services {
		all := measured[at]
		both := middle(all, func(it turn) float64 { return it.both })
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.0f | %.2f |\n", it.name,
			middle(all, func(it turn) float64 { return it.acquire }),
			middle(all, func(it turn) float64 { return it.release }), both,
			middle(all, func(it turn) float64 { return it.both99 }), both/ofEtcd)
	}
}

func services(ctx context.Context) []service {
	client := must(holdfast.Connect(ctx, os.Getenv("HOLDFAST_ENDPOINTS"), holdfast.WithRequestTimeout(time.Minute)))
	ours := func(options ...holdfast.LockOption) func(string) (release, error) {
		return func(name string) (release, error) {
			guard, err := client.Lock(ctx, name, options...)
			if err != nil {
				return nil, err
			}
			return func() error { return guard.Release(ctx) }, nil
		}
	}
	etcd := must(clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("ETCD_ENDPOINT")}}))
	session := must(concurrency.NewSession(etcd, concurrency.WithTTL(30)))
	locks := redsync.New(goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: os.Getenv("REDIS_ADDRESS")})))
	return []service{
		{"holdfast", ours()},
		{"holdfast, efficiency tier", ours(holdfast.Efficiency())},
		{"clientv3/concurrency", func(name string) (release, error) {
			mutex := concurrency.NewMutex(session, name)
			return func() error { return mutex.Unlock(ctx) }, mutex.Lock(ctx)
		}},
		{"redsync", func(name string) (release, error) {
			mutex := locks.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
			return func() error { _, err := mutex.Unlock(); return err }, mutex.Lock()
		}},
	}
}

func measure(service service, operations int) turn {
	var acquires, releases, both []float64
	name := "compare/go/" + service.name
	for range operations {
		began := time.Now()
		release, err := service.acquire(name)
		if err != nil {
			log.Fatalf("%s: acquire: %v", service.name, err)
		}
		held := time.Now()
		if err := release(); err != nil {
			log.Fatalf("%s: release: %v", service.name, err)
		}
		ended := time.Now()
		acquires = append(acquires, micros(held.Sub(began)))
		releases = append(releases, micros(ended.Sub(held)))
		both = append(both, micros(ended.Sub(began)))
	}
	return turn{share(acquires, 50), share(releases, 50), share(both, 50), share(both, 99)}
}

func micros(span time.Duration) float64 { return float64(span) / float64(time.Microsecond) }

func share(numbers []float64, percent int) float64 {
	slices.Sort(numbers)
	return numbers[len(numbers)*percent/100]
}

func middle(turns []turn, of func(turn) float64) float64 {
	var numbers []float64
	for _, it := range turns {
		numbers = append(numbers, of(it))
	}
	return share(numbers, 50)
}

func number(variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	return must(strconv.Atoi(text))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
