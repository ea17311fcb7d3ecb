"""Pictures of graphs: boxes and arrows laid out in layers, written as SVG. Knows neither imports nor tasks: those who draw them do."""
