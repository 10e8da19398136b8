// The Pulumi provider for Kubernetes, served from its published library. The module's own main package embeds two files
// that only its release process generates; this one embeds what the toolchain puts beside it at build time, made from
// the schema and the mapping that the module does publish.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema-embed.json
var schema []byte

//go:embed terraform-mapping-embed.json
var terraformMapping []byte

func main() {
	provider.Serve("kubernetes", version.Version, schema, terraformMapping)
}
