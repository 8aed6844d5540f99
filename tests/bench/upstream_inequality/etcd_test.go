// What a range costs etcd: its index of keys, its backend for each revision, and the decoding of what is found there.

package inequality

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

const keyCount = 20_000

var (
	prefix, prefixEnd = []byte("/registry/minions/"), []byte("/registry/minions0")
	value             = []byte(strings.Repeat("x", 600))
)

var (
	back  backend.Backend
	store mvcc.KV
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "inequality-")
	if err != nil {
		panic(err)
	}
	back = backend.NewDefaultBackend(zap.NewNop(), filepath.Join(folder, "db"))
	store = mvcc.NewStore(zap.NewNop(), back, &lease.FakeLessor{}, mvcc.StoreConfig{})
	for i := range keyCount {
		store.Put([]byte(fmt.Sprintf("%snode-%06d", prefix, i)), value, lease.NoLease)
	}
	store.Commit()
	code := m.Run()
	store.Close()
	back.Close()
	os.RemoveAll(folder)
	os.Exit(code)
}

// Nanoseconds are told for each key of the range, not for each that is answered.
func ranged(b *testing.B, options mvcc.RangeOptions) {
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		read := store.Read(mvcc.ConcurrentReadTxMode, traceutil.TODO())
		if _, err := read.Range(context.Background(), prefix, prefixEnd, options); err != nil {
			b.Fatal(err)
		}
		read.End()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keyCount, "ns/key")
}

// treeIndex alone: CountRevisions walks the keys.
func BenchmarkRangeCount(b *testing.B) { ranged(b, mvcc.RangeOptions{CountOnly: true}) }

// treeIndex, then a lookup in the backend (its buffer, then bbolt) and a decoding for each key.
func BenchmarkRangeAll(b *testing.B) { ranged(b, mvcc.RangeOptions{}) }

// Of the same range ten, and how many there are: as kube-apiserver pages. The count still walks all keys.
func BenchmarkRangeTenCounted(b *testing.B) {
	ranged(b, mvcc.RangeOptions{Limit: 10, WithTotalCount: true})
}
func BenchmarkRangeTen(b *testing.B) { ranged(b, mvcc.RangeOptions{Limit: 10}) }

// The backend alone: a lookup of each revision, as Range does it, and one cursor over them all.
func BenchmarkBackendEach(b *testing.B)   { lookUp(b, true) }
func BenchmarkBackendCursor(b *testing.B) { lookUp(b, false) }

func lookUp(b *testing.B, each bool) {
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		tx := back.ConcurrentReadTx()
		tx.RLock()
		if each {
			key := mvcc.NewRevBytes()
			for rev := int64(2); rev < keyCount+2; rev++ {
				key = mvcc.RevToBytes(mvcc.Revision{Main: rev}, key)
				if _, found := tx.UnsafeRange(schema.Key, key, nil, 0); len(found) != 1 {
					b.Fatal(rev)
				}
			}
		} else {
			low := mvcc.RevToBytes(mvcc.Revision{Main: 2}, mvcc.NewRevBytes())
			high := mvcc.RevToBytes(mvcc.Revision{Main: keyCount + 2}, mvcc.NewRevBytes())
			if _, found := tx.UnsafeRange(schema.Key, low, high, 0); len(found) != keyCount {
				b.Fatal(len(found))
			}
		}
		tx.RUnlock()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keyCount, "ns/key")
}

func BenchmarkDecodeKeyValue(b *testing.B) {
	data, err := proto.Marshal(&mvccpb.KeyValue{Key: append(prefix, "node-000001"...), Value: value, ModRevision: 7})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		if err := proto.Unmarshal(data, &mvccpb.KeyValue{}); err != nil {
			b.Fatal(err)
		}
	}
}
