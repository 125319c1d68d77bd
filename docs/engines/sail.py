from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer(port=0)
server.start()
host, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()

texts = spark.read.format("delta").load("/data/lake/texts").where("verdict = 'kept'")
head = texts.select("id", "text")

version = spark.read.format("delta").option("versionAsOf", 3).load("/data/lake/texts")
old = version.where("verdict = 'kept'").select("id", "text")

documents = spark.read.format("delta").load("/data/lake/documents").where("num_words > 500")
joined = texts.join(documents, ["source", "row"]).select(texts.id, "text", "num_words")
