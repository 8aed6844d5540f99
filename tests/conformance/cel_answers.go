// Reads a JSON list of expressions and bindings, writes what each evaluates to and costs in the environment of device
// selectors of Kubernetes 1.36, with the variable `v` beside `device`: the judge of minikube_py/cel. Built with
// k8s.io/apiserver and k8s.io/dynamic-resource-allocation v0.36.2.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

type asked struct {
	Expression string `json:"expression"`
	Limit      uint64 `json:"limit"`
}

type input struct {
	Variables map[string]any `json:"variables"`
	Asked     []asked        `json:"asked"`
}

// What is not in it is an empty map, as dynamic-resource-allocation has it for the domains of a device.
type lenient struct{ traits.Mapper }

func (l lenient) Find(key ref.Val) (ref.Val, bool) {
	if value, found := l.Mapper.Find(key); found {
		return value, true
	}
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{}), true
}

// All that is below `v` has at most five items, characters or bytes; of the rest no size is known.
type sizes struct{}

func (sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if path := node.Path(); len(path) > 0 && path[0] == "v" {
		return &checker.SizeEstimate{Min: 0, Max: 5}
	}
	return nil
}

func (sizes) EstimateCallCost(_, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	return nil
}

// Whole numbers are ints, as in what the API server decodes.
func plain(v any) any {
	switch t := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			return i
		}
		f, _ := t.Float64()
		return f
	case []any:
		for i := range t {
			t[i] = plain(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = plain(t[k])
		}
		if text, ok := t["$quantity"].(string); ok {
			q := resource.MustParse(text)
			return apicel.Quantity{Quantity: &q}
		}
		if text, ok := t["$semver"].(string); ok {
			return apicel.Semver{Version: semver.MustParse(text)}
		}
		if entries, ok := t["$default"].(map[string]any); ok {
			return lenient{types.NewStringInterfaceMap(types.DefaultTypeAdapter, entries)}
		}
	}
	return v
}

func shown(v ref.Val) any {
	switch t := v.(type) {
	case types.Null:
		return []any{"null"}
	case types.Bool:
		return []any{"bool", bool(t)}
	case types.Int:
		return []any{"int", strconv.FormatInt(int64(t), 10)}
	case types.Uint:
		return []any{"uint", strconv.FormatUint(uint64(t), 10)}
	case types.Double:
		if math.IsNaN(float64(t)) {
			return []any{"double", "nan"}
		}
		return []any{"double", strconv.FormatUint(math.Float64bits(float64(t)), 16)}
	case types.String:
		return []any{"string", string(t)}
	case types.Bytes:
		return []any{"bytes", hex.EncodeToString([]byte(t))}
	case types.Duration:
		return []any{"duration", strconv.FormatInt(int64(t.Duration), 10)}
	case types.Timestamp:
		return []any{"timestamp", t.Time.UTC().Format(time.RFC3339Nano)}
	case *types.Optional:
		if !t.HasValue() {
			return []any{"optional"}
		}
		return []any{"optional", shown(t.GetValue())}
	case traits.Lister:
		items := []any{"list"}
		for i := int64(0); i < int64(t.Size().(types.Int)); i++ {
			items = append(items, shown(t.Get(types.Int(i))))
		}
		return items
	case traits.Mapper:
		entries := [][2]any{}
		for it := t.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entries = append(entries, [2]any{shown(key), shown(t.Get(key))})
		}
		sort.Slice(entries, func(i, j int) bool {
			return fmt.Sprint(entries[i][0]) < fmt.Sprint(entries[j][0])
		})
		return []any{"map", entries}
	case *apicel.Quantity:
		return []any{"Quantity", t.Quantity.String()}
	case apicel.Quantity:
		return []any{"Quantity", t.Quantity.String()}
	case apicel.Semver:
		return []any{"Semver", t.Version.String()}
	case apicel.IP:
		return []any{"IP", netip.Addr(t.Addr).String()}
	case apicel.CIDR:
		return []any{"CIDR", netip.Prefix(t.Prefix).String()}
	case apicel.URL:
		u := url.URL(*t.URL)
		return []any{"URL", u.String()}
	}
	if t, ok := v.(ref.Type); ok {
		return []any{"type", t.TypeName()}
	}
	return []any{"other", v.Type().TypeName()}
}

func main() {
	var in input
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	if err := decoder.Decode(&in); err != nil {
		panic(err)
	}
	vars := plain(in.Variables).(map[string]any)
	base := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).
		CompileCELExpression("true", dracel.Options{EnvType: ptr.To(environment.NewExpressions)}).Environment
	env, err := base.Extend(cel.Variable("v", cel.DynType))
	if err != nil {
		panic(err)
	}
	out := []map[string]any{}
	for _, each := range in.Asked {
		out = append(out, answer(env, each, vars))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}

func answer(env *cel.Env, each asked, vars map[string]any) map[string]any {
	ast, issues := env.Compile(each.Expression)
	if issues.Err() != nil {
		return map[string]any{"invalid": issues.String()}
	}
	estimate, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizes{}})
	if err != nil {
		panic(err)
	}
	limit := each.Limit
	if limit == 0 {
		limit = 1_000_000
	}
	program, err := env.Program(ast, cel.CostLimit(limit), cel.CostTracking(&library.CostEstimator{}))
	if err != nil {
		return map[string]any{"program": err.Error(), "estimate": estimate.Max}
	}
	value, details, err := program.Eval(vars)
	told := map[string]any{"estimate": estimate.Max}
	if details != nil && details.ActualCost() != nil {
		told["cost"] = *details.ActualCost()
	}
	if err != nil {
		told["error"] = err.Error()
	} else {
		told["value"] = shown(value)
	}
	return told
}
