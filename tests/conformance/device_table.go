// Writes what upstream's table of allocator tests asks, one JSON object a case. Stands in for structured/allocator_test.go
// in a copy of k8s.io/dynamic-resource-allocation; see record_devices.py.
package structured

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured/internal"
	"k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting"
)

type noting struct {
	Allocator
	name     string
	state    AllocatedState
	classes  []*resourceapi.DeviceClass
	slices   []*resourceapi.ResourceSlice
	channel  internal.AllocatorChannel
	features Features
	out      *json.Encoder
}

func (n *noting) Channel() internal.AllocatorChannel { return n.channel }

func (n *noting) GetStats() internal.Stats {
	if extended, ok := n.Allocator.(internal.AllocatorExtended); ok {
		return extended.GetStats()
	}
	return internal.Stats{}
}

func (n *noting) Allocate(ctx context.Context, node *v1.Node, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	devices := []string{}
	for id := range n.state.AllocatedDevices {
		devices = append(devices, id.String())
	}
	shared := []string{}
	for id := range n.state.AllocatedSharedDeviceIDs {
		shared = append(shared, id.String())
	}
	capacity := map[string]map[string]string{}
	for id, amounts := range n.state.AggregatedCapacity {
		capacity[id.String()] = map[string]string{}
		for name, amount := range amounts {
			capacity[id.String()][string(name)] = amount.String()
		}
	}
	err := n.out.Encode(map[string]any{
		"name": n.name, "node": node, "claims": claims, "classes": n.classes, "slices": n.slices,
		"allocated": map[string]any{"devices": devices, "shared": shared, "capacity": capacity},
	})
	if err != nil {
		panic(err)
	}
	return n.Allocator.Allocate(ctx, node, claims)
}

func TestAllocator(t *testing.T) {
	file, err := os.Create(os.Getenv("TABLE_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := json.NewEncoder(file)
	make := func(ctx context.Context, features Features, state AllocatedState, classes DeviceClassLister, slices []*resourceapi.ResourceSlice, cache *cel.Cache) (allocatortesting.Allocator, error) {
		allocator, err := NewAllocator(ctx, features, state, classes, slices, cache)
		if err != nil {
			return nil, err
		}
		known, _ := classes.List()
		channel := allocator.(internal.Allocator).Channel()
		return &noting{allocator, t.Name(), state, known, slices, channel, features, out}, nil
	}
	allocatortesting.TestAllocator(t, internal.FeaturesAll, make)
	allocatortesting.TestLexicographicalAllocator(t, internal.FeaturesAll, make)
}
