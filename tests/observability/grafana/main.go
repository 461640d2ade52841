// Holds a dashboard's file to Grafana's own schema of it: no field that it does not know, that has another type,
// or that is missing. Prints what is wrong, one sentence a line, and ends with 1 then.
//
//	grafana-schema strandline.json
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	var board dashboard.Dashboard
	wrong := board.UnmarshalJSONStrict(text)
	if wrong == nil || wrong.Error() == "" { // an empty list of errors is none
		wrong = board.Validate()
	}
	if wrong != nil && wrong.Error() != "" {
		fmt.Println(wrong)
		os.Exit(1)
	}
	fmt.Printf("%d panels\n", len(board.Panels))
}
